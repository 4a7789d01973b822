"""`TopologyTestDriver`: runs a topology without a cluster, one record at a time, for tests of applications.

    with TopologyTestDriver(topology()) as driver:
        driver.pipe("planes", "N14228", {"seats": 149})
        driver.pipe("departures", "N14228", {"to": "IAH"})
        assert driver.read("departures-with-seats") == [...]

It has one task per subtopology, of the same class as a running instance, with stores in a directory that it removes. A
record that the topology sends to one of its own sources is processed before `pipe` returns.

Source: TopologyTestDriver of Kafka Streams.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from anabranch.clients.consumer.consumer_record import NO_GENERATION, ConsumerRecord
from anabranch.clients.streams.failures import FAIL, Failures
from anabranch.clients.streams.global_store import GlobalStore
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Output, Task
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_graph import Subtopology
from anabranch.protocol.records.record import Headers
from anabranch.protocol.suggestion import suggest, suggest_arguments


class SentRecord(NamedTuple):
    """A record that the topology has sent, with its decoded value."""

    key: bytes | None
    value: Any
    timestamp_ms: int
    headers: Headers = ()


@suggest_arguments
class TopologyTestDriver:
    """Runs a topology in a test, without a cluster: records go in with `pipe`, and come out with `read`.

    Close it after use, or use it in `with`.

    Args:
        topology: The application.
        application_id: The application's name, with which the names of its internal topics begin.
        now_ms: The time of day at the beginning, in milliseconds since 1970; `advance` moves it on.
        deserialization_handler: What happens to a record that cannot be decoded, as in `StreamsConfig`.
        processing_handler: What happens to a record for which a function of the application raises, likewise.
        errors_dead_letter_queue_topic_name: The topic for dead-letter.

    Raises:
        ValueError: The topology cannot be built (`Topology.build`).
    """

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str = "test",
        now_ms: int = 0,
        deserialization_handler: str = FAIL,
        processing_handler: str = FAIL,
        errors_dead_letter_queue_topic_name: str = "",
    ) -> None:
        built = topology.build(application_id)
        self._application_id = application_id
        self._failures = Failures(
            deserialization_handler=deserialization_handler,
            processing_handler=processing_handler,
            dead_letter_topic=errors_dead_letter_queue_topic_name,
        )
        self._exit = contextlib.ExitStack()
        self._directory = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-driver-")))
        self._global = {part.sources[0]: self._open_global(part) for part in built.global_tables}
        self._tasks = [self._open(part) for part in built.subtopologies]
        self._reading = {topic: task for task in self._tasks for topic in task.subtopology.sources}
        self._offsets = dict.fromkeys((*self._reading, *self._global), 0)
        self._sent: dict[str, deque[Output]] = {}
        self.now_ms = now_ms

    def _open(self, subtopology: Subtopology) -> Task:
        task_id = TaskId(subtopology.index, 0)
        disk = TaskDisk(self._directory / str(task_id), subtopology.stores)
        self._exit.callback(disk.close)
        task = Task(
            task_id,
            self._application_id,
            subtopology,
            disk,
            state=State.CATCHING_UP,
            failures=self._failures,
            global_stores={store.name: store.rows for store in self._global.values()},
        )
        task.run()
        return task

    def _open_global(self, part: Subtopology) -> GlobalStore:
        disk = TaskDisk(self._directory / "global" / part.stores[0], part.stores)
        self._exit.callback(disk.close)
        return GlobalStore(part, disk)

    # input

    def pipe(
        self,
        topic: str,
        key: bytes | str | None,
        value: Any,
        *,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        serde: Serde | None = None,
    ) -> None:
        """Process one record of a source topic, and everything that the topology sends to its own sources.

        Args:
            topic: A topic that the topology reads, also as a global table.
            key: The record's key; text is encoded as UTF-8.
            value: The record's value, before it is encoded; None is a deletion.
            timestamp_ms: The record's timestamp; the driver's time if None.
            headers: (name, value) pairs.
            serde: How the value is encoded; as the topology decodes it if None. `BYTES` pipes what cannot be decoded.

        Raises:
            ValueError: The topology does not read this topic.
            RecordFailed: The record cannot be decoded, or a function of the application raises; the cause says why.
        """
        encode = (serde or self._part(topic).roots[topic].value).encode
        self._process(
            Output(
                topic,
                key.encode() if isinstance(key, str) else key,
                None if value is None else encode(value),
                self.now_ms if timestamp_ms is None else timestamp_ms,
                headers,
            )
        )

    def advance(self, by_ms: int) -> None:
        """Move the time of day on, and call the timers of wall-clock time that are due then.

        Raises:
            ValueError: `by_ms` is negative.
            RecordFailed: A function of the application raises.
        """
        if by_ms < 0:
            raise ValueError(f"time does not go back: advance by {by_ms} ms")
        self.now_ms += by_ms
        for task in self._tasks:
            self._process(*self._collect(task.punctuate(self.now_ms, math.inf)))

    def _part(self, topic: str) -> Subtopology:
        if topic not in self._offsets:
            raise ValueError(f"the topology does not read {topic!r}; {suggest(topic, self._offsets)}")
        return self._global[topic].part if topic in self._global else self._reading[topic].subtopology

    def _process(self, *first: Output) -> None:
        due = deque(first)
        while due:
            topic, key, value, timestamp_ms, headers = due.popleft()
            offset = self._offsets[topic]
            self._offsets[topic] += 1
            record = ConsumerRecord(topic, 0, offset, timestamp_ms, key, value, tuple(headers), NO_GENERATION)
            if topic in self._global:
                store = self._global[topic]
                if key is not None:
                    store.rows.changes.pop(key, None)  # a row that a test has put is replaced
                store.apply([record], {0: offset + 1}, NO_GENERATION)
            else:
                due.extend(self._collect(self._reading[topic].process([record], now_ms=self.now_ms)))

    def _collect(self, outputs: Sequence[Output]) -> list[Output]:
        """Keep what was sent, and return what the topology reads again."""
        for output in outputs:
            self._sent.setdefault(output.topic, deque()).append(output)
        return [output for output in outputs if output.topic in self._offsets]

    # output

    def read(self, topic: str, *, value: Serde = JSON) -> list[SentRecord]:
        """Return what was sent to a topic since the last call, oldest first.

        Args:
            topic: Its name; that of an internal topic begins with the application id.
            value: How values are decoded.

        Returns:
            The records; none if nothing was sent.
        """
        sent = self._sent.pop(topic, deque())
        return [
            SentRecord(row.key, None if row.value is None else value.decode(row.value), row.timestamp_ms, row.headers)
            for row in sent
        ]

    @property
    def late(self) -> int:
        """The number of times that a record came after its window had closed."""
        return self._failures.late

    # state

    def store(self, name: str) -> StateStore:
        """Return a store, to look at or to fill: keys and values are bytes.

        Raises:
            ValueError: The topology has no such store.
        """
        stores = self.stores
        if name not in stores:
            raise ValueError(
                f"the topology has no store {name!r}; {suggest(name, stores) if stores else 'it has none'}"
            )
        return stores[name]

    @property
    def stores(self) -> Mapping[str, StateStore]:
        """Every store by its name."""
        of_tasks = {name: store for task in self._tasks for name, store in task.stores.items()}
        return of_tasks | {store.name: store.rows for store in self._global.values()}

    def close(self) -> None:
        """Close the stores, and remove them."""
        self._exit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
