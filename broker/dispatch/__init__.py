"""Dispatch of requests to handlers, with their context: versions, authorization, and the services of the node."""
