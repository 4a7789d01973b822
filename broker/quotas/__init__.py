"""Quotas: client bandwidth, request time, connections, controller mutations, memory of requests and responses."""
