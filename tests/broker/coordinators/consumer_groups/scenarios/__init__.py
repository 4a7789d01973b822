"""Scenarios of a KIP-848 group, and their runner."""
