"""Compatibility profiles: one table for each version of Kafka that a node can show (decision D19)."""
