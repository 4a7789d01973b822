"""Which Kafka a node shows to its clients: one table per version (decision D19)."""
