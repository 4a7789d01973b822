"""Compatibility profiles: one module for each version of Kafka that a node can emulate (decision D19)."""
