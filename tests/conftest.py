"""What all tests share: running coroutines strictly, and one real ZooKeeper for the whole session."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from anabranch.spark_jobs import java
from anabranch.zookeeper import LocalZooKeeper, why_unavailable

T = TypeVar("T")
Runner = Callable[[Coroutine[Any, Any, T]], T]

settings.register_profile(
    "steady", deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
settings.load_profile("steady")  # before any test is made: the same examples everywhere, however long they take


def pytest_report_header() -> str:
    """Say at the top whether the tests marked `zookeeper` can run, and on what."""
    reason = why_unavailable()
    if reason is not None:
        return f"zookeeper: NOT AVAILABLE, {reason}"
    return f"zookeeper: a real server from PySpark's jars, on {java.find()}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.workers import Grouped  # pytest-xdist may not be in use

    return Grouped(config, log)


def pytest_collection_finish() -> None:
    """Let what was collected be out of every later collection of garbage.

    Whenever a loop has ended we look for what it forgot (`run_strictly`), a thousand times. Each look would go through
    all 340,000 objects of 8,000 collected tests, and take 0.2 s.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def arun() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run a coroutine on a loop of its own, and fail as soon as that loop sees an exception that nobody handled.

    A task that dies unobserved, or a callback that raises, is a bug even when every assertion holds.
    """
    return run_strictly


def run_strictly(coroutine: Coroutine[Any, Any, T]) -> T:
    """What `arun` does; for fixtures of wider scope too."""
    unhandled: list[BaseException | str] = []

    async def main() -> T:
        task = asyncio.ensure_future(coroutine)

        def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            unhandled.append(context.get("exception") or context["message"])
            task.cancel()  # what it waits for may never come now

        asyncio.get_running_loop().set_exception_handler(complain)
        try:
            return await task
        finally:
            gc.collect()  # a forgotten task complains when it is collected: let it do so while we listen

    try:
        result = asyncio.run(main())
    except asyncio.CancelledError:
        if not unhandled:
            raise
    if unhandled:
        cause = next((error for error in unhandled if isinstance(error, BaseException)), None)
        raise AssertionError(f"the loop saw what nobody handled: {unhandled}") from cause
    return result


@pytest.fixture(scope="session")
def local_zookeeper() -> Iterator[LocalZooKeeper]:
    """One real ZooKeeper for all tests of the session; they share it through `zookeeper_hosts`."""
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    with LocalZooKeeper() as zookeeper:
        yield zookeeper


_chroots = itertools.count(1)


@pytest.fixture
def zookeeper_hosts(local_zookeeper: LocalZooKeeper) -> str:
    """Connection string of the real ZooKeeper with a chroot of its own for each test."""
    return f"{local_zookeeper.hosts}/test-{next(_chroots)}"
