"""How often each page was viewed in each ten seconds, as a table that changes while views come.

    anabranch topics create views --partitions 2
    anabranch topics create views-per-window --partitions 2
    anabranch streams examples/page_views.py:topology --application-id page-views --state-dir page-views-state
    python examples/page_views.py 127.0.0.1:9092

The application counts. The last command reads its results, and prints them as a table. A window's count moves with its
page when `views` is resized.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from anabranch import Consumer, TimeWindows, Topology

WINDOW_MS: Final = 10_000
WINDOWS_SHOWN: Final = 6
CLEAR_SCREEN: Final = "\x1b[2J\x1b[H"


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    windows = TimeWindows(WINDOW_MS, grace_ms=WINDOW_MS)
    counts = application.stream("views").windowed_by(windows).count("views-of-page")
    counts.map(lambda window, count: (window.key, {"from_ms": window.start_ms, "views": count})).to("views-per-window")
    return application


class Table:
    """The latest count of each page and window."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}

    def update(self, page: str, row: dict[str, Any]) -> None:
        """Take over a result of the application; a later one of the same window replaces it."""
        self.counts[page, row["from_ms"]] = row["views"]

    def lines(self) -> Iterable[str]:
        """Return a line per page, with a column per window, the newest one last."""
        windows = sorted({from_ms for _, from_ms in self.counts})[-WINDOWS_SHOWN:]
        times = (time.strftime("%H:%M:%S", time.gmtime(from_ms // 1000)) for from_ms in windows)
        yield "  ".join([f"{'page':20}", *times])
        for page in sorted({page for page, from_ms in self.counts if from_ms in windows}):
            yield "  ".join([f"{page:20}", *(f"{self.counts.get((page, one), 0):8}" for one in windows)])


async def show(servers: str) -> None:
    """Print the table whenever it changes, until Ctrl-C."""
    table = Table()
    async with Consumer(
        "views-per-window",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while True:
            records = await consumer.getmany(timeout_ms=1000)
            for record in (one for rows in records.values() for one in rows):
                assert record.key is not None and record.value is not None
                table.update(record.key.decode(), json.loads(record.value))
            if records:
                print(CLEAR_SCREEN if sys.stdout.isatty() else "", *table.lines(), sep="\n", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(show(sys.argv[1]))
