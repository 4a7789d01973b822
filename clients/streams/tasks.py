"""One task: a subtopology on one partition of its sources, with its part of the stores.

    CATCHING_UP --its changelogs are read, and what it waits for has arrived--> RUNNING
         ^------------- keys may arrive, a transaction failed, it is assigned anew ---'
    STANDBY: follows the changelogs and processes nothing; becomes CATCHING_UP when it is to run

Decides nothing about time, and asks no other part: `TaskMachine` says what it does when. `ProcessorStateManager` has
what its stores hold, and how far they are restored. Source: StreamTask and StandbyTask of Kafka Streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.changelog import MISPLACED
from anabranch.clients.streams.context import Clock, ReadOnlyStore, Timed
from anabranch.clients.streams.failures import Failures, key_text, place_of
from anabranch.clients.streams.misplaced_keys import KeyPlaces, MisplacedKey
from anabranch.clients.streams.processor_state_manager import ProcessorStateManager
from anabranch.clients.streams.serdes import Undecodable, check_bytes
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import Progress, State
from anabranch.clients.streams.timed_store import MarkedStore, TimedStore
from anabranch.clients.streams.timers import Fire, TaskTimers
from anabranch.clients.streams.topology_graph import INTERNAL, Subtopology, internal_name
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.records.record import Headers
from anabranch.protocol.topic_partition import TopicPartition

FIRED_MAX: Final = 1000
"""How many timers of wall-clock time are called at a time, so that records are processed meanwhile."""


class Output(NamedTuple):
    """A record that the topology sends."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class Task:
    """One task of an instance: its state, its stores, and its steps."""

    def __init__(
        self,
        task: TaskId,
        application_id: str,
        subtopology: Subtopology,
        disk: TaskDisk,
        *,
        state: State,
        failures: Failures | None = None,
        global_stores: Mapping[str, ReadOnlyStore] = MappingProxyType({}),
    ) -> None:
        self.id = task
        self.subtopology = subtopology
        self.partitions = tuple(TopicPartition(topic, task.partition) for topic in subtopology.sources)
        self.state_manager = ProcessorStateManager(subtopology.stores, subtopology.timestamped, disk)
        self.stores = self.state_manager.stores
        self.state = state
        self.warming = state is State.STANDBY
        """Whether it is an incomplete copy; the leader may wait to move the task here."""
        self.outputs: list[Output] = []
        self.timestamp_ms = self.stream_time_ms = -1
        self.headers: Headers = ()
        self.now_ms = -1
        self._timers: dict[str, TaskTimers] = {}
        self._timed: list[TimedStore] = []
        self.processed = 0
        self.fired = False
        """Whether timers were called since the last commit."""
        self._sent_before = 0
        self._failures = failures or Failures()
        self._application_id = application_id
        self._global_stores = global_stores
        self._handlers = subtopology.bind(self)

    # interface of the topology's steps (Context)

    def store(self, name: str) -> StateStore:
        """Return one of the task's stores."""
        return self.stores[name]

    timestamped = store

    def global_store(self, name: str) -> ReadOnlyStore:
        """Return a global table's store."""
        return self._global_stores[name]

    def timers(self, name: str) -> TaskTimers:
        """Return timers of the task."""
        return self._timers[name]

    def add_timers(self, name: str, clock: Clock, fire: Fire) -> None:
        """Add timers to the task, before it runs."""
        self._timers[name] = TaskTimers(self.stores[name], clock, fire)

    def add_timed_store(self, name: str, make: Callable[[MarkedStore, int], Timed]) -> Timed:
        """Make a store with stream time of one of the task's stores, before it runs."""
        timed = make(self.stores[name], self.id.partition)
        self._timed.append(timed)
        return timed

    def drop_late(self) -> None:
        """Count a record that came after its window had closed."""
        self._failures.late += 1

    def hand_on_late_result(self, what: str, key: bytes, hand_on: Callable[[], None]) -> None:
        """Hand on a result of earlier records; if it fails, and failed records are skipped, skip it alone."""
        if not self._failures.undoing:
            hand_on()
            return
        sent_before, timestamp_ms, headers = len(self.outputs), self.timestamp_ms, self.headers
        undoable: tuple[StateStore | TimedStore, ...] = (*self.stores.values(), *self._timed)
        for one in undoable:
            one.begin_part()
        try:
            hand_on()
        except Exception as error:
            self._failures.handle_timer(f"{what} of key {key_text(key)}", error)
            self.timestamp_ms, self.headers = timestamp_ms, headers
            del self.outputs[sent_before:]
            for one in undoable:
                one.undo_part()
        else:
            for one in undoable:
                one.keep_part()

    def emit(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Send a record. Raises TypeError if key or value is not bytes."""
        if topic.startswith(INTERNAL):
            topic = internal_name(self._application_id, topic.removeprefix(INTERNAL))
        check_bytes(key, value, "topic", topic)
        self.outputs.append(Output(topic, key, value, self.timestamp_ms, self.headers))

    # running

    def process(
        self,
        records: Sequence[ConsumerRecord],
        lineages: Mapping[str, Lineage | None] = MappingProxyType({}),
        now_ms: int = -1,
    ) -> list[Output]:
        """Run the topology on records of its partitions; return its output. Raises `RecordFailed`.

        `lineages` are those of its topics, None without order; with one, records in another partition than their key's
        are detected (`misplaced_keys`). `now_ms` is the time of day.
        """
        assert self.state is State.RUNNING, f"{self.id} is {self.state.value} and was given records"
        self.now_ms = now_ms
        handlers = self._handlers
        places_in = {topic: self._places(lineage) for topic, lineage in lineages.items()}
        undoing = self._failures.undoing
        stream_timers = [name for name, timers in self._timers.items() if timers.clock is Clock.STREAM_TIME]
        for record in records:
            self.timestamp_ms, self.headers = record.timestamp, record.headers
            before_ms = self.stream_time_ms
            self.stream_time_ms = max(before_ms, record.timestamp)
            if undoing:
                self._begin()
            try:
                places = places_in.get(record.topic)
                if places is not None and (misplaced := places.check_place(record)) is not None:
                    self._handle_misplaced(record, misplaced, resized=places.resized)
                handlers[record.topic](record.key, record.value)
            except Exception as error:
                self._drop(record, error)
                self.stream_time_ms = before_ms
            for name in stream_timers:
                self._fire(name, self.stream_time_ms)
        self.processed += len(records)
        return self._take_outputs()

    def punctuate(self, now_ms: int, most: float = FIRED_MAX) -> list[Output]:
        """Call the functions of the timers that are due by the time of day; return their output. Raises `RecordFailed`.

        At most `most` of each name: the rest is due in the next call.
        """
        assert self.state is State.RUNNING, f"{self.id} is {self.state.value} and has no time"
        self.now_ms = now_ms
        for name, timers in self._timers.items():
            if timers.clock is Clock.WALL_CLOCK_TIME:
                self._fire(name, now_ms, most)
        return self._take_outputs()

    def _fire(self, name: str, now_ms: int, most: float = math.inf) -> None:
        timers = self._timers[name]
        while most > 0 and (due := timers.take_due(now_ms)) is not None:
            most -= 1
            self.fired = True
            key, self.timestamp_ms = due
            self.headers = ()
            if self._failures.undoing:
                self._begin()
            try:
                timers.fire(*due)
            except Exception as error:
                self._failures.handle_timer(f"the timer {name} of key {key_text(key)}, due at {due[1]},", error)
                self._undo()

    def _take_outputs(self) -> list[Output]:
        for store in self.stores.values():
            store.keep()
        for timed in self._timed:
            timed.note_time()
        sent, self.outputs = self.outputs, []
        return sent

    def _places(self, lineage: Lineage | None) -> KeyPlaces | None:
        """Return the places of keys, if misplaced ones are still to be found: without a resize one is enough."""
        if lineage is None or not self.stores:
            return None
        places = KeyPlaces(lineage)
        known = all(MISPLACED in store.marks for store in self.stores.values())
        return None if known and not places.resized else places

    def _handle_misplaced(self, record: ConsumerRecord, misplaced: MisplacedKey, *, resized: bool) -> None:
        """Handle a record in another partition than its key's."""
        if resized:
            raise misplaced
        for store in self.stores.values():
            store.marks.setdefault(MISPLACED, place_of(record).encode())

    def _begin(self) -> None:
        self._sent_before = len(self.outputs)
        for store in self.stores.values():
            store.begin()
        for timed in self._timed:
            timed.begin()

    def _drop(self, record: ConsumerRecord, error: Exception) -> None:
        """Undo the effects of a failed record that does not end the instance."""
        headers = self._failures.handle(record, error)
        if not isinstance(error, Undecodable):
            self._undo()
        if headers is not None:
            topic = self._failures.dead_letter_topic
            self.outputs.append(Output(topic, record.key, record.value, record.timestamp, headers))

    def _undo(self) -> None:
        del self.outputs[self._sent_before :]
        for store in self.stores.values():
            store.undo()
        for timed in self._timed:
            timed.undo()

    def on_committed(self, written: Mapping[str, Sequence[int]], *, transactional: bool) -> None:
        """Write changes that were committed to the changelogs at these offsets to the disk."""
        self.state_manager.on_committed(written, transactional=transactional)
        self.fired = False

    def on_aborted(self) -> None:
        """Drop uncommitted changes. The changelogs are read again, as their content is unknown."""
        self.outputs, self.fired = [], False
        self.state_manager.on_aborted()
        self.catch_up()

    # states

    def catch_up(self) -> None:
        """Read the changelogs to their current ends, then run."""
        assert not self.state_manager.changed, f"{self.id} has changes that are not committed"
        self.state = State.CATCHING_UP
        self.state_manager.targets = None
        self.warming = False

    def stand_by(self) -> None:
        """Follow the changelogs, and process nothing."""
        assert not self.state_manager.changed, f"{self.id} has changes that are not committed"
        if self.state is State.RUNNING:
            self.state_manager.disk.note_current()
        self.state = State.STANDBY
        self.state_manager.targets = None

    def run(self) -> None:
        """Start processing: all state is complete."""
        self.state_manager.trust()
        for timers in self._timers.values():
            timers.load()
        for timed in self._timed:
            timed.load()
        self.state = State.RUNNING

    @property
    def progress(self) -> Progress:
        """Return the task's progress."""
        targets = self.state_manager.targets
        end = -1 if targets is None else sum(targets.values())
        return Progress(self.id, self.state, self.state_manager.checkpoint_sum, end)

    def close(self) -> None:
        """Close the stores on disk, as of the last commit."""
        self.state_manager.disk.close()
