"""The snapshots of a cluster by name, and the clusters that were forked from it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, TypedDict

from anabranch.control.actions import ActionRefused, Actions, UnknownNode
from anabranch.state.snapshot import InvalidSnapshot, NotInMemory, Snapshot

if TYPE_CHECKING:
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.events import Events
    from anabranch.journal.journal import Journal

Run = Callable[["Cluster", int], contextlib.AbstractAsyncContextManager[str]]
"""Runs a cluster whose time of day is so many milliseconds ahead, and yields its control plane's URL."""


class ForkRow(TypedDict):
    """A cluster that was forked from another one."""

    fork: Annotated[int, "the number of the fork"]
    bootstrap: Annotated[str, "its bootstrap servers"]
    listeners: Annotated[dict[str, str], "the bootstrap servers by the listener's name"]
    control: Annotated[str, "the URL of its control plane"]


class States:
    """Snapshots by name, and forks by number."""

    def __init__(
        self,
        cluster: Cluster,
        actions: Actions,
        events: Events,
        journal: Journal | None,
        clock: ClusterClock | None,
        run: Run,
    ) -> None:
        self._cluster = cluster
        self._actions = actions
        self._events = events
        self._journal = journal
        self._clock = clock
        self._run = run
        self.kept: dict[str, Snapshot] = {}
        self._forks: dict[int, contextlib.AsyncExitStack] = {}
        self._numbers = itertools.count(1)

    def get(self, name: str) -> Snapshot:
        """Get a snapshot by name. Raises UnknownNode if it does not exist."""
        try:
            return self.kept[name]
        except KeyError:
            there = ", ".join(self.kept) or "none"
            raise UnknownNode(f"there is no snapshot {name}; there are {there}") from None

    async def take(self) -> Snapshot:
        """Take a snapshot; not in the middle of an action, in which some brokers have stopped.

        Raises ActionRefused if the cluster keeps its data in a directory.
        """
        async with self._actions.exclusively():
            with _refused():
                return self._cluster.snapshot(0 if self._clock is None else self._clock.lead_ms())

    async def reset(self) -> None:
        """Reset the cluster's data, rules, journal and clock. Raises ActionRefused."""
        async with self._actions.exclusively():
            with _refused():
                self._cluster.check_in_memory()
            if self._clock is not None:
                self._clock.run_at(1.0)
                self._clock.lead_by(0)
            for node_id in self._cluster.node_ids:
                self._cluster.shift_clock(node_id, 0)
            with _refused():
                await self._cluster.reset()
            if self._journal is not None:
                self._journal.clear()
            self._events.publish("reset")

    async def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot; rules and journal stay. Raises ActionRefused or InvalidSnapshot."""
        async with self._actions.exclusively():
            self._check_metadata()
            with _refused(), self._moving(snapshot.lead_ms):
                await self._cluster.restore(snapshot)
            self._events.publish("restored")

    def _check_metadata(self) -> None:
        """Refuse a restore whose brokers would wait for metadata that a rule withholds."""
        for armed in self._cluster.faults if self._cluster.has_rules else ():
            name = armed.rule.name
            if armed.withholds_metadata:
                raise ActionRefused(f"brokers cannot become ready while rule {name} withholds metadata; remove it")

    @contextlib.contextmanager
    def _moving(self, lead_ms: int) -> Iterator[None]:
        """Set the time of day ahead, and let the clock run while brokers start, because they may have to retry.

        A refused snapshot leaves the time of day, as the cluster keeps its state.
        """
        if self._clock is None:
            yield
            return
        pace, lead_before_ms = self._clock.scale, self._clock.lead_ms()
        self._clock.run_at(1.0)
        self._clock.lead_by(lead_ms)
        try:
            yield
        except (InvalidSnapshot, NotInMemory):
            self._clock.lead_by(lead_before_ms)
            raise
        finally:
            self._clock.run_at(pace)

    async def fork(self, snapshot: Snapshot) -> ForkRow:
        """Start another cluster with a snapshot's data and its own control plane."""
        number, cluster = next(self._numbers), self._cluster.fork(snapshot)
        async with contextlib.AsyncExitStack() as stack:
            url = await stack.enter_async_context(self._run(cluster, snapshot.lead_ms))
            self._forks[number] = stack.pop_all()
        self._events.publish("forked", fork=number, bootstrap=cluster.bootstrap_servers)
        return {
            "fork": number,
            "bootstrap": cluster.bootstrap_servers,
            "listeners": cluster.listeners,
            "control": url,
        }

    async def end_fork(self, number: int) -> None:
        """Stop a fork. Raises UnknownNode if it does not exist."""
        fork = self._forks.pop(number, None)
        if fork is None:
            raise UnknownNode(f"there is no fork {number}")
        await fork.aclose()

    async def close(self) -> None:
        """Stop all forks."""
        for number in list(self._forks):
            await self.end_fork(number)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Refuse what is impossible with data on disk, or because the port of a broker is taken."""
    try:
        yield
    except NotInMemory as error:
        raise ActionRefused(str(error)) from None
    except OSError as error:
        raise ActionRefused(f"not all nodes have started again: {error.strerror or error}") from None
