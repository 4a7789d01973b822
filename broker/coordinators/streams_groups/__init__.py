"""Streams groups (KIP-1071): topologies, tasks, members, epochs. Pure."""
