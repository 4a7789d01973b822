"""examples/page_views.py: counts are right through a resize, and the table shows the latest windows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.testing import TopologyTestDriver
from examples import page_views
from examples.page_views import WINDOW_MS, Table, show, topology
from tests.clients.streams.world import streams_world, until

PAGES = [f"page-{number}" for number in range(30)]
START_MS = 1_700_000_000_000


def test_views_are_counted_by_window() -> None:
    table = Table()
    with TopologyTestDriver(topology()) as driver:
        for page, timestamp_ms in (("home", 0), ("cart", 1), ("home", 9_999), ("home", 10_000)):
            driver.pipe("views", page, b"", timestamp_ms=START_MS + timestamp_ms)
        for row in driver.read("views-per-window"):
            assert row.key is not None
            table.update(row.key.decode(), row.value)
    assert list(table.lines()) == [
        "page                  22:13:20  22:13:30",
        "cart                         1         0",
        "home                         2         1",
    ]


def test_table_shows_the_newest_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_views, "WINDOWS_SHOWN", 2)
    table = Table()
    for number in range(4):
        table.update("home" if number else "old", {"from_ms": START_MS + number * WINDOW_MS, "views": number})
    assert list(table.lines()) == [
        "page                  22:13:40  22:13:50",
        "home                         2         3",
    ]


async def test_table_is_complete_when_the_views_are_resized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = Table()
    async with streams_world(tmp_path, topics=()) as world:
        await world.topics("views", "views-per-window", partitions=2)
        async with world.instance(topology()) as streams:
            for number in range(600):
                if number == 300:
                    await world.producer.flush()
                    await until(lambda: streams.processed == 300, "half of the views are counted")
                    await world.admin.create_partitions("views", 4)
                page, window = world.rng.choice(PAGES), START_MS + WINDOW_MS * (number % 2)
                expected.counts[page, window] = expected.counts.get((page, window), 0) + 1
                await world.producer.send("views", b"", page.encode(), timestamp_ms=window)
            await world.producer.flush()
            printed: list[str] = []

            def is_complete() -> bool:
                printed.append(capsys.readouterr().out)
                return "".join(printed).endswith("\n".join(["", *expected.lines(), ""]))

            showing = asyncio.create_task(show(world.cluster.bootstrap_servers))
            try:
                await until(is_complete, "the table has every view")
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
            assert streams.moves.keys > 0, "no window has moved"
