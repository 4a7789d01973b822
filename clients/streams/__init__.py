"""Stream processing on the consumer: tasks, who runs them, and state that follows its keys (KIP-429, KIP-441)."""
