"""Metrics of a node for Prometheus. Nothing here is imported by a node without --metrics-port."""
