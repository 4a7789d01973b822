"""Clients of a cluster. What applications use of them is imported from `anabranch`."""
