"""The wire protocol: message declarations, codecs, record batches, linear hashing. Pure: no I/O, no clock."""
