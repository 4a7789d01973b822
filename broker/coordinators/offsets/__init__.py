"""Committed offsets of groups, and the positions that members exchange (KIP-253)."""
