"""The log of one partition: files, segment files, indexes, leader epochs, producer state."""
