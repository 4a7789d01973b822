"""Stream processing on the consumer: tasks, their assignment, and state that moves with its keys (KIP-429, KIP-441)."""
