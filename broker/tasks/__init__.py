"""asyncio helpers for all parts of a node."""
