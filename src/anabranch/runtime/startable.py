"""The base of what is started and stopped: `async with` starts it, and stops it also when the start fails half way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Startable(ABC):
    """Something that runs between `start` and `stop`."""

    @abstractmethod
    async def start(self) -> None:
        """Start it; returns when it can be used."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop all of it that was started."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
