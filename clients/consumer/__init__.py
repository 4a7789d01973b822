"""The consumer: membership, fetching, and the gate that keeps keys in order through resizes."""
