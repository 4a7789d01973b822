"""Scenarios of a KIP-848 group, and what plays them."""
