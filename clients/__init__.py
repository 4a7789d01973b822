"""Clients of a cluster: `Producer`, `Consumer` and `Admin`."""
