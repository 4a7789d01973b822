"""Started parts are stopped, also after a failed start."""

from __future__ import annotations

import pytest

from anabranch.runtime.startable import Startable


class Part(Startable):
    def __init__(self, refuses: bool = False) -> None:
        self.calls: list[str] = []
        self._refuses = refuses

    async def start(self) -> None:
        self.calls.append("start")
        if self._refuses:
            raise OSError("no port")

    async def stop(self) -> None:
        self.calls.append("stop")


async def test_part_runs_within_its_block() -> None:
    async with Part() as part:
        assert part.calls == ["start"]
    assert part.calls == ["start", "stop"]
    with pytest.raises(ZeroDivisionError):
        async with part:
            _ = 1 // 0
    assert part.calls[-1] == "stop"


async def test_part_is_stopped_after_failed_start() -> None:
    part = Part(refuses=True)
    with pytest.raises(OSError, match="no port"):
        async with part:
            raise AssertionError("it is not running")
    assert part.calls == ["start", "stop"]
