"""Scenarios of streams groups."""
