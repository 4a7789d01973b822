"""The state of a cluster as data: snapshots and data directories."""
