"""What is said on the wire: declarations, codecs, record batches, linear hashing. Pure: no I/O, no clock."""
