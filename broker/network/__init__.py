"""Sockets: listeners accept connections, connections read requests and write responses in order."""
