"""Finds the handler of a request and gives it its context: versions, rights, and the services of the node."""
