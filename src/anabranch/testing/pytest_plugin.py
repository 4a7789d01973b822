"""Pytest fixtures with a live Kafka endpoint for any project's tests, with any client.

`anabranch` is a fresh cluster for each test, started in some ten milliseconds; `anabranch_cluster` is one for the whole
session. `anabranch_processes` is a cluster of real processes, emptied before each test.

    def test_orders(anabranch):
        producer = confluent_kafka.Producer({"bootstrap.servers": anabranch.bootstrap_servers})

    @pytest.mark.anabranch(brokers=3, config={"num.partitions": 4}, journal=1000)
    def test_orders_on_three_brokers(anabranch):
        ...

With the extra `control`, a test can cause failures, and wait for conditions:

    def test_failover(anabranch_cluster):
        topic = anabranch_cluster.topic(partitions=3)
        with anabranch_cluster.nodes[2].killed():
            anabranch_cluster.wait_for(topic=topic, isr="1,3")

    def test_real_kill(anabranch_processes):
        anabranch_processes.nodes[2].kill()  # SIGKILL

Rules fail, hold, delay or damage responses, for a block or a test; a rule without a hit fails the test:

    @pytest.mark.anabranch(rules=[{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}])
    def test_retries(anabranch):
        ...
        with anabranch.faults(api="Fetch", delay_ms=500) as rule:
            ...

The report of a failed test has the cluster's rules, the last exchanges and the last events, in less than 40 lines, and
names a file with all of them as JSON lines. Tests share `anabranch_cluster`: use separate topics in each test, and
restart what it stops.

Settings in pytest.ini: `anabranch_brokers = 3` (by default 1, and 3 as processes), `anabranch_journal = 1000` (default:
200), `anabranch_kafka = 4.1` (the compatibility profile; `1=3.9,2=4.1` in the middle of an upgrade), and
`anabranch_properties` with one broker property per line. They apply to all fixtures; the marker overrides them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Generator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from anabranch.protocol.suggestion import suggest
from anabranch.testing.failure_report import FailureReport, ReportStart
from anabranch.testing.launched_cluster import CannotStart, launched_cluster
from anabranch.testing.running_cluster import RunningCluster as RunningCluster

if TYPE_CHECKING:
    from anabranch.testing.clusters import Clusters

JOURNAL_SIZE = 200
"""So many exchanges a failure report can choose from, unless pytest.ini says otherwise."""
TEARDOWN_LINES = 5
"""The lines that a report shows of the output after a test."""
BEGAN: pytest.StashKey[ReportStart] = pytest.StashKey()
OWN: pytest.StashKey[RunningCluster] = pytest.StashKey()
"""The cluster of a test."""
SHARED: pytest.StashKey[RunningCluster] = pytest.StashKey()
"""The cluster of a session."""
FIXTURES = ("anabranch", "anabranch_cluster", "anabranch_processes")
SHARED_FIXTURE = "anabranch_cluster"
CONFIGURED = {"anabranch", "anabranch_processes"}
"""The fixtures whose cluster a marker may configure."""
UNAVAILABLE = "anabranch_processes: "
"""The beginning of the reason for which a test of a cluster of processes is skipped."""
ARGUMENTS = ("rules", "brokers", "config", "listeners", "journal", "frames", "kafka")
"""The arguments of the marker."""
HIDDEN = ("anabranch", "asyncio", "contextlib")
"""The packages whose frames are left out of the traceback of an error of this project, such as `ControlError`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of pytest.ini; pytest calls it."""
    parser.addini("anabranch_brokers", "number of brokers of the fixtures' clusters", default="")
    parser.addini("anabranch_journal", "number of exchanges in their journals", default=str(JOURNAL_SIZE))
    parser.addini("anabranch_kafka", "version of Kafka that their clients see; default: 3.9", default="")
    parser.addini("anabranch_properties", "their properties, one NAME=VALUE per line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; pytest calls it."""
    config.addinivalue_line(
        "markers",
        f"anabranch({', '.join(ARGUMENTS)}): fault rules of the cluster; "
        "for an own cluster also its size, properties, listeners, journal and version of Kafka",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marker with invalid arguments; pytest calls it."""
    shared = item.session.stash.get(SHARED, None)
    if shared is not None and SHARED_FIXTURE in getattr(item, "fixturenames", ()):
        item.stash[BEGAN] = shared.report_start()
    marked = _marker_arguments(item)
    if marked is None:
        return
    fixtures = set(FIXTURES) & set(getattr(item, "fixturenames", ()))
    unused = sorted(marked.keys() - {"rules"})
    if not fixtures:
        _refuse(f"it needs the fixture {' or '.join(FIXTURES)}")
    if unused and not fixtures & CONFIGURED:
        _refuse(f"{', '.join(unused)}: anabranch_cluster is shared by the session, and configured only by pytest.ini")
    if "listeners" in marked and "anabranch" not in fixtures:
        _refuse("listeners: the fixture anabranch_processes has one listener")
    if not isinstance(config := marked.get("config", {}), Mapping):
        _refuse(f'config has properties and their values, such as {{"num.partitions": 4}}, not {config!r}')
    if not isinstance(rules := marked.get("rules", ()), list | tuple):
        _refuse(f"rules is a list of rules, not {rules!r}")


def _marker_arguments(item: pytest.Item) -> dict[str, Any] | None:
    """The merged arguments of the markers of a test, its class and its module, the nearest first; None without any."""
    markers = list(item.iter_markers("anabranch"))
    for marker in markers:
        if marker.args:
            _refuse(f"it takes keyword arguments, such as {ARGUMENTS[0]}=, not {marker.args[0]!r}")
        for name in marker.kwargs:
            if name not in ARGUMENTS:
                _refuse(f"unknown argument {name!r}; {suggest(name, ARGUMENTS)}")
    if not markers:
        return None
    marked: dict[str, Any] = {}
    for marker in reversed(markers):
        marked |= marker.kwargs
    return marked


def _refuse(reason: str) -> NoReturn:
    raise pytest.fail.Exception(f"@pytest.mark.anabranch: {reason}", pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Apply the rules of a test's marker; pytest calls it."""
    marked = _marker_arguments(item)
    cluster = _cluster_of(item)
    if cluster is not None:
        item.stash[BEGAN] = cluster.report_start()
    if not marked or cluster is None:
        return (yield)
    from anabranch.control.control_error import ControlError

    with contextlib.ExitStack() as stack:
        for rule in marked.get("rules", ()):
            fields = dict(rule) if isinstance(rule, Mapping) else {"rule": rule}
            try:
                stack.enter_context(cluster.faults(**fields))
            except (ControlError, ValueError) as error:
                _refuse(f"rules: {error}")
        answer = yield
        from anabranch.faults.active_rule import RuleNeverHit

        try:
            stack.close()
        except RuleNeverHit as error:
            _refuse(str(error))
        return answer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cluster's sections to the report of a failed test; pytest calls it."""
    cluster = _cluster_of(item)
    if call.excinfo is not None and cluster is not None and not item.config.getoption("fulltrace"):
        _hide_own_frames(call.excinfo)
    report = yield
    if report.failed and report.when in ("setup", "call") and cluster is not None:
        found = cluster.report(item.stash.get(BEGAN, None))
        report.sections += [(f"anabranch {title}", text) for title, text in found.sections()]
        report.sections += [("anabranch: all of this cluster as JSON lines", path) for path in _write_rows(found)]
    if report.when == "teardown" and cluster is not None:
        report.sections = [(title, _shorten(text)) for title, text in report.sections]
    return report


def _shorten(text: str) -> str:
    """Keep the first lines: clients that outlive their cluster print a line for each attempt to connect."""
    lines = text.splitlines(keepends=True)
    more = len(lines) - TEARDOWN_LINES
    return text if more <= 0 else "".join([*lines[:TEARDOWN_LINES], f"... and {more} lines more\n"])


def _hide_own_frames(raised: pytest.ExceptionInfo[BaseException]) -> None:
    """Have the traceback of an error of this project end in the test's own line."""
    if _package(raised.type.__module__) != "anabranch":
        return
    entries: list[TracebackType] = []
    entry: TracebackType | None = raised.tb
    while entry is not None:
        if _package(entry.tb_frame.f_globals.get("__name__", "")) not in HIDDEN:
            entries.append(entry)
        entry = entry.tb_next
    shown = None
    for one in reversed(entries):
        shown = TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
    if shown is not None:
        raised.traceback = type(raised.traceback)(shown)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _write_rows(found: FailureReport) -> Iterator[str]:
    """Write all rows of a report to a file, and return its path; nothing without rows."""
    lines = list(found.json_lines())
    if lines:
        with tempfile.NamedTemporaryFile(
            "w", prefix="anabranch-", suffix=".jsonl", delete=False, encoding="utf-8"
        ) as file:
            file.write("\n".join(lines) + "\n")
        yield file.name


def _cluster_of(item: pytest.Item) -> RunningCluster | None:
    """The cluster of a test, if it has one; another of its fixtures may have requested it, and may have failed."""
    given = getattr(item, "funcargs", {})
    found = (given.get(name) for name in FIXTURES)  # the name may belong to another plugin's fixture
    cluster = next((one for one in found if isinstance(one, RunningCluster)), None) or item.stash.get(OWN, None)
    if cluster is None and SHARED_FIXTURE in getattr(item, "fixturenames", ()):
        return item.session.stash.get(SHARED, None)
    return cluster


@pytest.fixture(scope="session")
def anabranch_clusters() -> Iterator[Clusters]:
    """Starts clusters for tests that need several, or special settings: `anabranch_clusters.running(...)`.

    Returns:
        The starter of clusters, in one process for the whole session.
    """
    from anabranch.testing.clusters import Clusters

    with Clusters() as clusters:
        yield clusters


@pytest.fixture
def anabranch(request: pytest.FixtureRequest, anabranch_clusters: Clusters) -> Iterator[RunningCluster]:
    """A fresh cluster for one test.

    `@pytest.mark.anabranch(brokers=, ...)` sets its size, properties, listeners, journal and compatibility profile; the
    defaults are in pytest.ini.

    Returns:
        The cluster, with `bootstrap_servers` for any Kafka client.

    Raises:
        pytest.fail.Exception: A property does not exist, or has an impossible value.
    """
    from anabranch.testing.clusters import CannotStart

    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(anabranch_clusters.running(**_options(request, brokers=1)))
        except CannotStart as error:
            raise _not_started(error) from None
        request.node.stash[OWN] = cluster
        yield cluster


@pytest.fixture
def anabranch_processes(request: pytest.FixtureRequest, anabranch_clusters: Clusters) -> Iterator[RunningCluster]:
    """A cluster of real processes, emptied before each test.

    `nodes[2].kill()` is SIGKILL. The cluster starts in seconds, and runs until a test has other settings. Before each
    test, dead nodes are started, and topics and groups deleted. After it, rules are removed, frozen nodes thawed, and
    suspended sessions resumed.
    `@pytest.mark.anabranch(brokers=, ...)` sets what it sets for `anabranch`, except the listeners.

    Returns:
        The cluster, with `bootstrap_servers` for any Kafka client.

    Raises:
        pytest.skip.Exception: The extra `control` is missing.
        pytest.fail.Exception: A property does not exist, or has an impossible value.
    """
    from anabranch.testing.clusters import CannotStart
    from anabranch.testing.process_clusters import ProcessesUnavailable

    options = _options(request, brokers=3)
    options.pop("listeners", None)
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(anabranch_clusters.running_processes(**options))
        except ProcessesUnavailable as error:
            pytest.skip(f"{UNAVAILABLE}{error}")
        except CannotStart as error:
            raise _not_started(error) from None
        request.node.stash[OWN] = cluster
        yield cluster


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how many tests were skipped because no cluster of processes can run here; pytest calls it."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.getreports("skipped")]
    reasons = [reason for reason in reasons if UNAVAILABLE in reason]
    if reasons:
        terminalreporter.line(f"NO CLUSTER OF PROCESSES, {len(reasons)} tests skipped: {reasons[0]}", yellow=True)


def _not_started(error: Exception) -> BaseException:
    return pytest.fail.Exception(f"the cluster did not start: {error}", pytrace=False)


def _options(request: pytest.FixtureRequest, *, brokers: int) -> dict[str, Any]:
    """The arguments that start a test's cluster: those of its marker before those of pytest.ini."""
    options, marked = _settings(request.config, brokers), _marker_arguments(request.node) or {}
    options["properties"] |= {name: str(value) for name, value in marked.get("config", {}).items()}
    return options | {name: value for name, value in marked.items() if name not in ("config", "rules")}


def _settings(config: pytest.Config, brokers: int) -> dict[str, Any]:
    lines = (line.partition("=") for line in config.getini("anabranch_properties"))
    return {
        "brokers": _number(config, "anabranch_brokers", brokers),
        "journal": _number(config, "anabranch_journal"),
        "kafka": str(config.getini("anabranch_kafka")),
        "properties": {name.strip(): value.strip() for name, _, value in lines},
    }


def _number(config: pytest.Config, name: str, default: int = 0) -> int:
    text = str(config.getini(name)) or str(default)
    if not text.isdecimal():
        raise pytest.UsageError(f"{name} of pytest.ini is a number, not {text!r}")
    return int(text)


@pytest.fixture(scope="session")
def anabranch_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A cluster for the whole session, started at the first test that uses it.

    The settings `anabranch_brokers` (default 1) and `anabranch_properties` set its size and properties; it keeps a
    journal of `anabranch_journal` exchanges.

    Returns:
        The cluster, with `bootstrap_servers` for any Kafka client.

    Raises:
        pytest.fail.Exception: The cluster did not start; its own output is on stderr.
    """
    settings = _settings(request.config, brokers=1)
    words = ["--port", "0", "--brokers", str(settings["brokers"]), "--kafka", settings["kafka"]]
    for name, value in settings["properties"].items():
        words += ["--config", f"{name}={value}"]
    if importlib.util.find_spec("aiohttp") is not None:
        words += ["--control", "127.0.0.1:0", "--control-journal", str(settings["journal"])]
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(launched_cluster(words))
        except CannotStart as error:
            pytest.fail(str(error), pytrace=False)
        request.node.stash[SHARED] = cluster
        yield cluster
