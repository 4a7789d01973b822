"""One partition log and what it is made of: files, segments, indexes, epochs, producer state."""
