"""Quotas of clients: bandwidth, request time, connections, controller mutations, request memory."""
