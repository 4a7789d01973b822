"""The output of `anabranch audit`: a live view, a report, metrics."""
