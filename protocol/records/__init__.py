"""Record batches: checksum, compression, the batch itself, and the markers of transactions."""
