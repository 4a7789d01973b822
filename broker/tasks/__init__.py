"""Helpers over asyncio that every part of a node uses."""
