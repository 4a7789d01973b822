"""Metrics of a node for Prometheus. A node without --metrics-port imports none of these modules."""
