"""Shared fixtures: strict event loops, and one real ZooKeeper per session."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from anabranch.cluster.local_zookeeper import LocalZooKeeper, why_unavailable
from anabranch.spark_jobs import java
from tests.compiled_parts import heeding_compiled_parts, is_compiled
from tests.exchanges import EXCHANGES, keep
from tests.loops import LOOPS, collect_garbage
from tests.second_run import EXIT_STATUS

ALL_EXAMPLES: Final[Mapping[str, Any]] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
settings.register_profile("same", max_examples=30, derandomize=True, **ALL_EXAMPLES)
settings.register_profile("others", max_examples=100, print_blob=True, **ALL_EXAMPLES)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what is to run in its background like that
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start and interrupt would inherit it
asyncio.set_event_loop(None)  # pytest-asyncio would make a loop to come back to, which nobody closes

LEFT_OUT: Final = pytest.StashKey[bool]()
"""Whether costly tests are left out."""
COLLECTING: Final = (True, gc.get_threshold())


if not is_compiled("anabranch.protocol.connection"):
    keep()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the costly tests be run with all others."""
    parser.addoption(
        "--costly",
        action="store_true",
        help="run the tests, too, that a run of all tests leaves out; property tests take other examples each time",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples of property tests before any is made. A run of some tests leaves none of them out."""
    settings.load_profile("others" if config.option.costly else "same")
    workers: dict[str, Any] | None = getattr(config, "workerinput", None)
    some = config.args_source is not config.ArgsSource.TESTPATHS or config.option.markexpr or config.option.keyword
    config.stash[LEFT_OUT] = not (some or config.option.costly) if workers is None else workers["leaves_out"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist, which has other arguments, whether this is a run of all tests."""
    node.workerinput["leaves_out"] = node.config.stash[LEFT_OUT]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the costly tests out of a run of all tests."""
    if config.stash[LEFT_OUT]:
        config.hook.pytest_deselected(items=[one for one in items if one.get_closest_marker("costly")])
        items[:] = [one for one in items if not one.get_closest_marker("costly")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep the exchanges of one test alone."""
    EXCHANGES.clear()


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """A test that leaves the garbage collector off, or lazy, would make later ones need too much memory."""
    yield
    left = gc.isenabled(), gc.get_threshold()
    if left != COLLECTING:
        gc.enable()
        gc.set_threshold(*COLLECTING[1])
        pytest.fail(f"the garbage collector was left as {left}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the exchanges of a test that fails: those of topics and groups that it, or its failure, names."""
    report = yield
    if report.failed and EXCHANGES.kept:
        try:
            source = inspect.getsource(item.obj) if isinstance(item, pytest.Function) else ""
            told = "\n".join(EXCHANGES.lines(f"{source} {report.longreprtext}"))
        except Exception as error:  # a message that a test has damaged must not hide why it failed
            told = f"they cannot be read: {error!r}"
        report.sections.append(("last exchanges of clients and brokers", told))
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note the exit status for `second_run`."""
    cache: pytest.Cache | None = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(EXIT_STATUS, int(exitstatus))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report whether the `zookeeper` tests can run, and on what, and whether costly tests are left out."""
    reason = why_unavailable()
    server = f"a real server from PySpark's jars, on {java.find()}" if reason is None else f"NOT AVAILABLE, {reason}"
    costly = "LEFT OUT; `make test-all` runs them" if config.stash[LEFT_OUT] else "run, too"
    return [f"zookeeper: {server}", f"costly tests: {costly}"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.workers import Grouped  # pytest-xdist may not be in use

    return Grouped(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among 340,000 objects that all stay: an eighth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave the 340,000 objects of the collected tests out of later garbage collections."""
    collect_garbage()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Asynchronous tests run on a strict loop; those that name loops in their mark run once on each of them."""
    mark = item.get_closest_marker("asyncio")
    return LOOPS if mark is not None and "loop_factories" in mark.kwargs else {"asyncio": LOOPS["asyncio"]}


if is_compiled("anabranch.protocol.codec"):

    @pytest.fixture
    def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
        """Pytest's own, but for what mypyc has compiled."""
        with pytest.MonkeyPatch.context() as patch:
            yield heeding_compiled_parts(patch)


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
