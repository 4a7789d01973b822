"""Explicit-state models of the ordered resize: every interleaving of small instances."""
