"""The base class of services: `async with` starts one, and stops it also if the start fails half way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Startable(ABC):
    """A service that runs between `start` and `stop`."""

    @abstractmethod
    async def start(self) -> None:
        """Start the service, and wait until it is usable."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop everything that was started."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
