"""Limits on clients: bandwidth, request time, connections, controller mutations, and the memory of requests."""
