"""What a node shows to Prometheus. Nothing here is imported by a node without --metrics-port."""
