"""What `anabranch audit` shows: a live view, a report, metrics."""
