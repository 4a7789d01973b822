"""The states of the last hour, at a resolution of a second. Pure.

It keeps a whole state per minute, and the changes in between, each compressed separately. Time and bytes are bounded;
beyond, the oldest minute is dropped.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.dashboard.state_delta import StateDelta

SPAN_S: Final = 3600.0
BYTES_MAX: Final = 32 << 20
CHAPTER_S: Final = 60.0
GRAIN_S: Final = 1.0
"""Changes closer together than this are merged."""
FASTEST: Final = 1


@dataclass(slots=True)
class _Chapter:
    """A whole state, and the changes until the next one."""

    at_s: float
    whole: bytes
    size_bytes: int
    times: list[float] = field(default_factory=list)
    deltas: list[bytes] = field(default_factory=list)


class History:
    """The past states of a cluster.

    Args:
        span_s: How far back it goes.
        bytes_max: Its maximum size, without the current minute.
    """

    def __init__(self, span_s: float = SPAN_S, bytes_max: int = BYTES_MAX) -> None:
        self._span_s = span_s
        self._bytes_max = bytes_max
        self._chapters: deque[_Chapter] = deque()
        self._pending = StateDelta()
        self._pending_s = 0.0
        self.size_bytes = 0

    @property
    def begin_s(self) -> float | None:
        """The first known moment; None if there is none."""
        return self._chapters[0].at_s if self._chapters else None

    def note(self, at_s: float, delta: StateDelta, rows: Mapping[str, Any]) -> None:
        """Record a change at this moment, and the resulting `rows`."""
        last = self._chapters[-1] if self._chapters else None
        if last is None or at_s - last.at_s >= CHAPTER_S or at_s < last.at_s:
            self.flush()
            self._begin(at_s, rows)
            return
        if at_s - (last.times[-1] if last.times else last.at_s) >= GRAIN_S:
            self.flush()
        self._pending.add(delta)
        self._pending_s = at_s

    def flush(self) -> None:
        """Store the last recorded change."""
        if not self._pending:
            return
        last, written = self._chapters[-1], _pack(self._pending.body())
        last.times.append(self._pending_s)
        last.deltas.append(written)
        last.size_bytes += len(written)
        self.size_bytes += len(written)
        self._pending = StateDelta()

    def at(self, at_s: float) -> tuple[float, dict[str, Any]] | None:
        """The newest state not after this moment, and its time; None before the first one."""
        self.flush()
        chapter = next((one for one in reversed(self._chapters) if one.at_s <= at_s), None)
        if chapter is None:
            return None
        rows: dict[str, Any] = _unpack(chapter.whole)
        count = bisect_right(chapter.times, at_s)
        for packed in chapter.deltas[:count]:
            StateDelta.from_body(_unpack(packed)).apply(rows)
        return chapter.times[count - 1] if count else chapter.at_s, rows

    def _begin(self, at_s: float, rows: Mapping[str, Any]) -> None:
        whole = _pack(rows)
        self._chapters.append(_Chapter(at_s, whole, len(whole)))
        self.size_bytes += len(whole)
        chapters = self._chapters
        while len(chapters) > 1 and (
            self.size_bytes > self._bytes_max or chapters[1].at_s < at_s - self._span_s or chapters[0].at_s > at_s
        ):
            self.size_bytes -= chapters.popleft().size_bytes


def _pack(what: Mapping[str, Any]) -> bytes:
    return zlib.compress(json.dumps(what, separators=(",", ":")).encode(), FASTEST)


def _unpack(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))
