"""Clusters of real processes, for tests: a cluster is emptied and used again, because it starts in seconds.

A cluster is used again by the next test with the same settings. Before that, its dead nodes are started, and its
topics and groups are deleted. A cluster that cannot be emptied, or has other settings, is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.properties_file import properties_text
from anabranch.clients.admin import Admin
from anabranch.clients.group_admin import delete_group, list_all_groups
from anabranch.clients.topic_admin import NewTopic
from anabranch.control.control_error import ControlError
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.runtime.private_files import write_private_file
from anabranch.testing.launched_cluster import CannotStart, launched_cluster

if TYPE_CHECKING:
    from anabranch.testing.running_cluster import RunningCluster

log: Final = logging.getLogger(__name__)

SESSION: Final = {"zookeeper.session.timeout.ms": "3000"}
"""How soon the others notice that a node is dead, unless a test sets the property."""
IN_SYNC_TIMEOUT_S: Final = 60.0
FREE_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
STOP_TIMEOUT_S: Final = 60.0


class ProcessesUnavailable(CannotStart):
    """This machine lacks what a cluster of processes needs; the message says what."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings with which a cluster was started."""

    brokers: int
    properties: Mapping[str, str]
    journal: int
    frames: bool
    kafka: str

    def options(self, properties_file: Path) -> list[str]:
        """Return the options of `anabranch up`, and write the properties to a file: passwords may be among them."""
        write_private_file(properties_file, properties_text({**SESSION, **self.properties}).encode())
        words = ["--processes", "--port", "0", "--brokers", str(self.brokers)]
        words += ["--kafka", self.kafka, "--config-file", str(properties_file), "--control", "127.0.0.1:0"]
        words += ["--control-journal", str(self.journal)]
        return [*words, "--control-frames"] if self.frames else words


@dataclass(frozen=True, slots=True)
class StartedCluster:
    """A running cluster with its settings, and what ends it."""

    settings: ProcessSettings
    cluster: RunningCluster
    ending: contextlib.ExitStack


class ProcessClusters:
    """Starts clusters of processes, and keeps the last one for the next test.

    Args:
        start: Starts a cluster.
    """

    def __init__(self, start: Callable[[ProcessSettings], StartedCluster] | None = None) -> None:
        self._start = start or start_processes
        self._kept: StartedCluster | None = None

    @contextlib.contextmanager
    def running(self, settings: ProcessSettings) -> Iterator[RunningCluster]:
        """Run an empty cluster while the block runs.

        Raises:
            ProcessesUnavailable: The control plane's libraries are missing.
            CannotStart: A setting is impossible.
        """
        one = self._take(settings) or self._start(settings)
        try:
            yield one.cluster
        finally:
            released = _succeeds(lambda: release(one.cluster))
            self.close()
            if released:
                self._kept = one
            else:
                one.ending.close()

    def close(self) -> None:
        """End the cluster that is kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.ending.close()

    def _take(self, settings: ProcessSettings) -> StartedCluster | None:
        """Take and empty the cluster that is kept. End it, and return None, if this test cannot use it."""
        kept = self._kept
        if kept is None or kept.settings != settings or not _succeeds(lambda: empty(kept.cluster)):
            self.close()
            return None
        self._kept = None
        return kept


def why_unavailable() -> str | None:
    """The reason why no cluster of processes can run here, or None."""
    if importlib.util.find_spec("aiohttp") is None:
        return "a cluster of processes needs the control plane: pip install 'anabranch[control]'"
    return None


def start_processes(settings: ProcessSettings) -> StartedCluster:
    """Start a cluster of processes and its ZooKeeper. Raises CannotStart."""
    if (reason := why_unavailable()) is not None:
        raise ProcessesUnavailable(reason)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-test-"))
        options = settings.options(Path(directory) / "cluster.properties")
        launched = launched_cluster(options, stop_timeout_s=STOP_TIMEOUT_S)
        cluster = stack.enter_context(launched)
        return StartedCluster(settings, cluster, stack.pop_all())


def release(cluster: RunningCluster) -> None:
    """Remove the rules, thaw the frozen nodes and resume suspended sessions, so that no client waits for them."""
    cluster.faults.clear()
    for node in cluster.nodes.values():
        with contextlib.suppress(ControlError):  # it is not cut off
            node.resume_session()
    for row in cluster.control.state()["nodes"]:
        if row.get("frozen"):
            cluster.nodes[row["node"]].thaw()


def empty(cluster: RunningCluster) -> None:
    """Start the dead nodes, set their clocks right, delete all groups and topics, and clear the journal."""
    for node in cluster.nodes.values():
        if not node.running:
            node.start()
    for row in cluster.control.state()["nodes"]:
        if row.get("clock_offset_ms"):
            cluster.nodes[row["node"]].shift_clock(0)
    with ThreadPoolExecutor(1) as pool:  # the thread of a test may run a loop
        pool.submit(asyncio.run, _delete_all(cluster.bootstrap_servers)).result()
    for node_id in cluster.nodes:
        cluster.wait_for(node=node_id, timeout_s=IN_SYNC_TIMEOUT_S)
    with contextlib.suppress(ControlError):  # no journal is kept
        cluster.journal.clear()


async def _delete_all(servers: str) -> None:
    """Delete all groups and topics, except the internal ones. Raises KafkaError if a group has members."""
    async with Admin(servers) as admin:
        for group in await list_all_groups(admin.network):
            await delete_group(admin.network, group.group_id)
        topics = await admin.list_topics()
        await admin.delete_topics(topics)
        async with asyncio.timeout(FREE_TIMEOUT_S):
            while not await _are_free(admin, topics):  # noqa: ASYNC110  # another process sets no event here
                await asyncio.sleep(POLL_S)


async def _are_free(admin: Admin, topics: Sequence[str]) -> bool:
    """Whether topics with these names could be created: a name is taken until all brokers have deleted the logs."""
    try:
        await admin.create_topics([NewTopic(name=name) for name in topics], validate_only=True)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def _succeeds(work: Callable[[], None]) -> bool:
    """Do work on a cluster, and return whether it succeeded. If not, another cluster replaces this one."""
    try:
        work()
    except (ControlError, KafkaError, OSError) as error:
        log.warning("the cluster of processes is replaced: %s", error)
        return False
    return True
