"""The wire protocol: declarations of messages, codecs, record batches, linear hashing. Pure: no I/O, no clock."""
