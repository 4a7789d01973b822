"""Metrics that clients push: who is asked for which, and what a broker takes (KIP-714)."""
