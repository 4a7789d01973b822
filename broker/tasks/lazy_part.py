"""A part of a node that is built at its first use.

It saves memory: most brokers coordinate no transactions, and many serve no incremental fetch sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Part = TypeVar("Part")


class LazyPart(Generic[Part]):
    """Builds its part once."""

    def __init__(self, build: Callable[[], Part]) -> None:
        self._build = build
        self.built: Part | None = None
        """None until `get` was called."""

    def get(self) -> Part:
        """Return the part; the first call builds it."""
        if self.built is None:
            self.built = self._build()
        return self.built
