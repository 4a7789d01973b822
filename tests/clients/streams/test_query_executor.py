"""Queries show what is committed, and what they lack: of tasks alone, and of instances through moves and a resize."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.streams.assignment_info import Host
from anabranch.clients.streams.changelog import arrived_mark
from anabranch.clients.streams.global_store import GlobalStore
from anabranch.clients.streams.joined import Reading
from anabranch.clients.streams.queries import (
    FailureReason,
    KeyMetadata,
    KeyQuery,
    PartitionState,
    Query,
    QueryRefused,
    QueryResult,
    QueryRow,
    RangeQuery,
    WindowQuery,
)
from anabranch.clients.streams.query_executor import QueryExecutor
from anabranch.clients.streams.serdes import BYTES, TEXT
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.task_disk import TaskDisk, Write
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windowed,
    Windows,
)
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage
from anabranch.protocol.topic_partition import TopicPartition
from tests.cases import for_each
from tests.clients.streams.world import World, counts, streams_world, until

MINUTES = TimeWindows(60_000)
PLACED: dict[int, list[bytes]] = {0: [], 1: [], 2: [], 3: []}
"""Some keys of each of four partitions."""
for number in range(200):
    PLACED[murmur2(b"key-%d" % number) % 4].append(b"key-%d" % number)


def row_of(key: bytes, value: bytes | None, timestamp_ms: int) -> ConsumerRecord:
    return ConsumerRecord("everywhere", 0, 0, timestamp_ms, key, value, (), -1)


def topology(windows: Windows = MINUTES) -> Topology:
    application = Topology()
    clicks = application.stream("in", value=TEXT)
    clicks.count("counts").to("out")
    clicks.windowed_by(windows).count("windows")
    application.global_table("everywhere", store="planes")
    left, right = application.stream("left"), application.stream("right")
    left.join_within(right, JoinWindows(before_ms=1, after_ms=1), lambda one, other: one, store="joined").to("out")
    return application


class View:
    """A consumer that knows one history of all topics."""

    rebalancing = False

    def __init__(self, lineage: Lineage | None, partitions: int) -> None:
        self.known, self.count = lineage, partitions

    def assignment(self) -> Collection[TopicPartition]:
        return ()

    def position(self, partition: TopicPartition) -> int:
        return -1

    def key_epoch(self, partition: TopicPartition) -> Reading | None:
        return None

    def lineage(self, topic: str) -> Lineage | None:
        return self.known

    assigned_lineage = lineage

    def partitions_of(self, topic: str) -> Collection[int]:
        return range(self.count)

    def group_metadata(self) -> ConsumerGroupMetadata:
        raise NotImplementedError


class Tables:
    """The global tables of an instance, of three partitions."""

    def __init__(self, stores: Mapping[str, GlobalStore]) -> None:
        self.stores = stores

    def lags(self, name: str) -> dict[int, int | None]:
        return {0: 0, 1: 7, 2: None}


class Queried:
    """Tasks on disk, without an application that runs."""

    def __init__(self, directory: Path, *, windows: Windows = MINUTES) -> None:
        self.built = topology(windows).build("app")
        self.tasks: dict[TaskId, Task] = {}
        self.view = View(Lineage(1, [(0, 4)]), 4)
        self.assigned = AssignedTasks()
        self.lags: dict[TaskId, int] = {}
        self._directory = directory
        (part,) = self.built.global_tables
        self.table = GlobalStore(part, TaskDisk(directory / "global", part.stores))

    @property
    def executor(self) -> QueryExecutor:
        return QueryExecutor(
            self.built,
            self.tasks,
            self.view,
            lambda: self.assigned,
            lambda task, store: self.lags.get(task.id),
            Tables({"planes": self.table}),
            "here:80",
        )

    def add(self, partition: int, state: State = State.RUNNING, changes: Mapping[bytes, int] | None = None) -> Task:
        """Open a task, with these counts on its disk."""
        part = self.built.subtopologies[0]
        task_id = TaskId(0, partition)
        task = Task(task_id, "app", part, TaskDisk(self._directory / str(task_id), part.stores), state=state)
        rows = {key: (100 + count).to_bytes(8, "big") + b"%d" % count for key, count in (changes or {}).items()}
        task.state_manager.disk.write(Write(changes={"counts": rows}))
        self.tasks[task_id] = task
        return task

    def add_windows(self, task: Task, *windows: tuple[bytes, int, int]) -> None:
        """Store windows of a key, start and end, with their starts as values."""
        made = self.built.subtopologies[0].windows["windows"]
        rows = {}
        for key, start_ms, end_ms in windows:
            window = made.window_of(key + b"\0" * made.suffix_bytes)._replace(start_ms=start_ms, end_ms=end_ms)
            rows[made.store_key(window)] = end_ms.to_bytes(8, "big") + b"%d" % start_ms
        task.state_manager.disk.write(Write(changes={"windows": rows}))

    def hosts(self, *, active: Mapping[str, int], standby: Mapping[str, int]) -> None:
        """The partition of the topic `in` that each host has."""

        def hosted(rows: Mapping[str, int]) -> dict[Host, list[TopicPartition]]:
            return {Host(name, 80): [TopicPartition("in", partition)] for name, partition in rows.items()}

        self.assigned = AssignedTasks(partitions_by_host=hosted(active), standby_partitions_by_host=hosted(standby))


@pytest.fixture
def queried(tmp_path: Path) -> Iterator[Queried]:
    made = Queried(tmp_path)
    yield made
    made.table.close()
    for task in made.tasks.values():
        task.close()


def test_key_has_its_committed_value(queried: Queried) -> None:
    key, absent = PLACED[1][:2]
    task = queried.add(1, changes={key: 3})
    task.stores["counts"].put(key, b"4", 200)
    result = queried.executor.execute("counts", KeyQuery(key))
    assert result.row == QueryRow(key, 3, 103)
    assert result.partitions == {1: PartitionState(State.RUNNING, 0)}
    assert queried.executor.execute("counts", KeyQuery(absent)).row is None
    assert queried.executor.execute("counts", KeyQuery(key), value=BYTES).rows == [QueryRow(key, b"3", 103)]


def test_range_is_in_order_of_keys_over_all_partitions(queried: Queried) -> None:
    keys = sorted(key for placed in PLACED.values() for key in placed[:5])
    for partition, placed in PLACED.items():
        queried.add(partition, changes=dict.fromkeys(placed[:5], partition))

    def rows(query: Query) -> list[bytes]:
        result = queried.executor.execute("counts", query)
        assert not result.failures and not result.more
        return [row.key for row in result.rows]

    assert rows(RangeQuery()) == keys
    assert rows(RangeQuery(first=keys[3], last=keys[11])) == keys[3:12]
    assert rows(RangeQuery(first=keys[3] + b"!", last=b"zzz", limit=16)) == keys[4:]
    limited = queried.executor.execute("counts", RangeQuery(limit=7))
    assert [row.key for row in limited.rows] == keys[:7] and limited.more
    every = queried.executor.execute("counts", RangeQuery()).rows
    five = sum(len(row.key) + 8 + len(str(row.value)) for row in every[:5])  # with a timestamp
    for bytes_max, count in ((1, 1), (five, 5), (five + 1, 6), (100 * five, len(keys))):
        limited = queried.executor.execute("counts", RangeQuery(bytes_max=bytes_max))
        assert (limited.rows, limited.more) == (every[:count], count < len(keys))


def test_partitions_that_are_elsewhere_are_named_with_their_owners(queried: Queried) -> None:
    queried.add(0, changes={PLACED[0][0]: 1})
    queried.hosts(active={"one": 1, "::1": 2}, standby={"one": 2, "three": 2})
    result = queried.executor.execute("counts", RangeQuery())
    assert [row.key for row in result.rows] == [PLACED[0][0]]
    assert [(one.partition, one.reason, one.owner) for one in result.failures] == [
        (1, FailureReason.NOT_PRESENT, "one:80"),
        (2, FailureReason.NOT_PRESENT, "[::1]:80"),
        (3, FailureReason.NOT_PRESENT, ""),
    ]
    with pytest.raises(
        QueryRefused, match=r"partition 2 of store counts is on the instance \[::1\]:80: query that one"
    ):
        _ = queried.executor.execute("counts", KeyQuery(PLACED[2][0])).row
    with pytest.raises(QueryRefused, match="give each instance an application_server"):
        _ = queried.executor.execute("counts", KeyQuery(PLACED[3][0])).row
    assert queried.executor.metadata("counts", PLACED[2][0]) == KeyMetadata(2, "[::1]:80", ("one:80", "three:80"))
    assert queried.executor.metadata("counts", PLACED[3][0]) == KeyMetadata(3, "", ())


@for_each(
    [
        (State.STANDBY, 7, "is a standby here, and 7 offsets of its changelog are still to be read: query one:80"),
        (State.STANDBY, None, "an unknown number of offsets"),
        (State.CATCHING_UP, 9, "restores its state, and 9 offsets of its changelog are still to be read: try again"),
    ]
)
def test_copies_answer_only_stale_queries(state: State, lag: int | None, complaint: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        queried = Queried(Path(directory))
        queried.hosts(active={"one": 1}, standby={})
        task = queried.add(1, state, {PLACED[1][0]: 3})
        if lag is not None:
            queried.lags[task.id] = lag
        with pytest.raises(QueryRefused, match=complaint) as refused:
            _ = queried.executor.execute("counts", KeyQuery(PLACED[1][0])).row
        assert [one.reason for one in refused.value.failures] == [FailureReason.NOT_ACTIVE]
        result = queried.executor.execute("counts", KeyQuery(PLACED[1][0]), stale=True)
        assert result.row == QueryRow(PLACED[1][0], 3, 103)
        assert result.partitions == {1: PartitionState(state, lag)}
        task.close()


def test_keys_that_a_resize_moves_are_refused_until_they_have_arrived(queried: Queried) -> None:
    """2 -> 4: the keys of partition 2 were in 0."""
    queried.view.known = Lineage(1, [(0, 2), (1, 4)])
    stays, moves = PLACED[0][0], PLACED[2][0]
    old = queried.add(0, changes={stays: 1, moves: 2})
    new = queried.add(2, State.CATCHING_UP)
    assert queried.executor.awaited(old) == ""
    assert "moves state here from partition 0" in queried.executor.awaited(new)
    assert queried.executor.execute("counts", KeyQuery(stays)).row == QueryRow(stays, 1, 101)
    for stale in (False, True):
        with pytest.raises(QueryRefused, match="a resize to 4 partitions moves state here from partition 0"):
            _ = queried.executor.execute("counts", KeyQuery(moves), stale=stale).row
    result = queried.executor.execute("counts", RangeQuery())
    assert [row.key for row in result.rows] == [stays]
    assert FailureReason.NOT_UP_TO_BOUND in {one.reason for one in result.failures if one.partition == 2}

    old.state_manager.disk.write(Write(changes={"counts": {moves: None}}))
    new.state_manager.take_over("counts", {moves: (102).to_bytes(8, "big") + b"2"}, dict([arrived_mark(0, 1)]), [0, 1])
    for store in new.stores.values():
        store.marks.update([arrived_mark(0, 1)])
    new.state = State.RUNNING
    assert queried.executor.awaited(new) == ""
    assert queried.executor.execute("counts", KeyQuery(moves)).row == QueryRow(moves, 2, 102)
    assert [one.partition for one in queried.executor.execute("counts", RangeQuery()).failures] == [1, 3]


def test_partition_that_awaits_keys_of_a_merge_says_so(queried: Queried) -> None:
    """4 -> 2: partition 0 runs, and has not got those of partition 2 yet."""
    queried.view.known = Lineage(1, [(0, 4), (1, 2)])
    task = queried.add(0, changes={PLACED[0][0]: 1})
    queried.add(1)
    awaited = "moves state here from partition 2"
    assert queried.executor.execute("counts", KeyQuery(PLACED[0][0])).row == QueryRow(PLACED[0][0], 1, 101)
    with pytest.raises(QueryRefused, match=awaited):
        _ = queried.executor.execute("counts", KeyQuery(PLACED[2][0])).row
    assert "from partition 2" in queried.executor.awaited(task)
    assert queried.executor.awaited(queried.add(3)) == "", "its partition is merged away"
    result = queried.executor.execute("counts", RangeQuery())
    assert len(result.rows) == 1 and {one.partition for one in result.failures} == {0, 1}
    task.stores["counts"].marks.update([arrived_mark(2, 1)])
    assert queried.executor.execute("counts", KeyQuery(PLACED[2][0])).row is None


def test_windows_are_found_by_key_and_start(queried: Queried) -> None:
    key = PLACED[1][0]
    task = queried.add(1)
    longer = next(key + b"%d" % number for number in itertools.count() if murmur2(key + b"%d" % number) % 4 == 1)
    starts = range(0, 300_000, 60_000)
    queried.add_windows(task, *((key, one, one + 60_000) for one in starts), (longer, 60_000, 120_000))

    def found(query: WindowQuery) -> list[tuple[bytes, int]]:
        rows = queried.executor.execute("windows", query).rows
        assert all(row.window and row.value == row.window.start_ms for row in rows)
        assert all(row.window and row.timestamp_ms == row.window.end_ms for row in rows)
        return [(row.key, row.value) for row in rows]

    assert found(WindowQuery(key=key)) == [(key, one) for one in starts]
    assert found(WindowQuery(60_000, 180_000, key)) == [(key, 60_000), (key, 120_000), (key, 180_000)]
    assert found(WindowQuery(60_001, 179_999, key)) == [(key, 120_000)]
    assert found(WindowQuery(key=key, limit=2)) == [(key, 0), (key, 60_000)]
    assert found(WindowQuery(120_000, 10**19, key)) == [(key, one) for one in starts if one >= 120_000]
    assert found(WindowQuery(10**19, key=key)) == [], "there is no such time"
    assert sorted(found(WindowQuery(60_000, 60_000))) == sorted([(key, 60_000), (longer, 60_000)])
    assert queried.executor.execute("windows", WindowQuery(key=key, limit=2)).more


def test_sessions_are_found_by_key_and_start(tmp_path: Path) -> None:
    key = PLACED[1][0]
    queried = Queried(tmp_path, windows=SessionWindows(gap_ms=10))
    queried.add_windows(task := queried.add(1), (key, 5, 500), (key, 600, 601), (key, 900, 2000))
    rows = queried.executor.execute("windows", WindowQuery(5, 600, key)).rows
    assert [row.window and row.window[1:] for row in rows] == [(5, 500), (600, 601)]
    task.close()


def test_sliding_windows_are_found_by_key_and_start_also_when_they_have_closed(tmp_path: Path) -> None:
    key = PLACED[1][0]
    queried = Queried(tmp_path, windows=SlidingWindows(10))
    queried.add_windows(task := queried.add(1), (key, 5, 15), (key, 7, 17), (key, 9, 19))
    store_key = SlidingWindows(10).store_key(Windowed(key, 7, 17))
    handed_on = (~17).to_bytes(8, "big", signed=True) + b"7"
    task.state_manager.disk.write(Write(changes={"windows": {store_key: handed_on}}))
    rows = queried.executor.execute("windows", WindowQuery(5, 8, key)).rows
    assert rows == [QueryRow(key, start, start + 10, Windowed(key, start, start + 10)) for start in (5, 7)]
    task.close()


@for_each(
    [
        ("count", KeyQuery(b"k"), "there is no store 'count'; did you mean counts?"),
        ("windows", KeyQuery(b"k"), "the store windows has windows: query it with WindowQuery"),
        ("windows", RangeQuery(), "query it with WindowQuery"),
        ("counts", WindowQuery(), "the store counts has no windows: query it with KeyQuery or RangeQuery"),
        ("joined-this-join-store", RangeQuery(), "has the records of a join"),
    ]
)
def test_queries_that_a_store_cannot_answer_are_refused(store: str, query: Query, complaint: str) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.raises(ValueError, match=complaint):
        Queried(Path(directory)).executor.execute(store, query)


def test_values_of_another_kind_are_refused(queried: Queried) -> None:
    task = queried.add(1)
    task.state_manager.disk.write(Write(changes={"counts": {PLACED[1][0]: b"\0" * 8 + b"{"}}))
    with pytest.raises(ValueError, match="a value of the store counts cannot be decoded"):
        queried.executor.execute("counts", KeyQuery(PLACED[1][0]))


def test_plain_topics_and_unknown_ones(queried: Queried) -> None:
    queried.view.known = None
    queried.add(1, changes={PLACED[1][0]: 1})
    assert queried.executor.execute("counts", KeyQuery(PLACED[1][0])).row == QueryRow(PLACED[1][0], 1, 101)
    queried.view.count = 0
    with pytest.raises(QueryRefused, match="the partitions of in are not known yet"):
        _ = queried.executor.execute("counts", KeyQuery(PLACED[1][0])).row
    assert queried.executor.metadata("counts", b"k") == KeyMetadata(-1, "", ())


# instances


async def test_each_key_is_answered_by_one_of_two_instances_through_resizes(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.feed(1000)
        async with (
            world.instance(counts(), application_server="one:80") as one,
            world.instance(counts(), "two", application_server="two:80") as two,
        ):
            instances = {"one:80": one, "two:80": two}
            await world.counted(one, two)
            await until(lambda: owners(world, instances) == {"one:80": 2, "two:80": 2}, "keys have owners")
            for count in (8, 3):
                watch = Watch(world, [one, two])
                watching = asyncio.create_task(watch.run())
                await world.admin.create_partitions("in", count, allow_shrink=True)
                await until(lambda: watch.refused > 0, "keys that move are refused")  # noqa: B023
                await until(lambda: sum(owners(world, instances).values()) == count, "keys have owners")  # noqa: B023
                await until(lambda: are_whole(world, instances), "both have all rows, and name each other")
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                assert watch.wrong == []
        with pytest.raises(StreamsError, match="the instance does not run"):
            one.query("counts", KeyQuery(b"k"))


class Watch:
    """Queries some keys of all instances all the time: no count differs from the one before the resize."""

    def __init__(self, world: World, instances: Collection[Streams]) -> None:
        self._keys = sorted(world.expected)[:20]
        self._world, self._instances = world, instances
        self.refused = 0
        """How often no instance has answered for a key."""
        self.wrong: list[object] = []

    async def run(self) -> None:
        while True:
            for key in self._keys:
                results = [one.query("counts", KeyQuery(key)) for one in self._instances]
                answered = [result for result in results if not result.failures]
                self.refused += not answered
                self.wrong += [(key, one) for one in answered if not is_count(one, self._world.expected[key])]
            await asyncio.sleep(0)


def is_count(result: QueryResult, count: int) -> bool:
    return result.row is not None and result.row.value == count


async def test_keys_behind_a_repartition_are_where_that_topic_has_them(tmp_path: Path) -> None:
    application = Topology()
    changed = application.stream("in").select_key(lambda key, value: key.removeprefix(b"key-"))
    changed.repartition("changed").count("counts").to("out")
    async with streams_world(tmp_path, topics=("out",)) as world:
        await world.topics("in", partitions=3)
        await world.feed(300)
        world.expected = Counter({key.removeprefix(b"key-"): count for key, count in world.expected.items()})
        async with world.instance(application) as one:
            await world.counted(one)
            await until(lambda: are_whole(world, {"": one}), "every key is committed")
            assert all(is_count(one.query("counts", KeyQuery(key)), count) for key, count in world.expected.items())


async def test_standby_answers_with_its_lag_and_becomes_the_owner(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world:
        await world.topics("single", partitions=1)
        application = Topology()
        application.stream("single").count("counts").to("out")
        settings: dict[str, Any] = {"num_standby_replicas": 1, "session_timeout_ms": 6000}
        async with world.instance(application, "two", application_server="two:80", **settings) as two:
            async with world.instance(application, application_server="one:80", **settings) as one:
                await until(lambda: {len(one.tasks), len(two.tasks)} == {1}, "each instance has the task")
                for _ in range(5):
                    await world.producer.send("single", b"", b"k")
                await world.producer.flush()
                active, copy = sorted((one, two), key=lambda each: each.progress()[0].state is State.STANDBY)
                await until(lambda: is_answered(active, 5), "the owner has the count")
                refused = copy.query("counts", KeyQuery(b"k"))
                assert [each.reason for each in refused.failures] == [FailureReason.NOT_ACTIVE]
                assert refused.failures[0].owner == active.config.application_server
                await until(lambda: is_answered(copy, 5, stale=True), "the copy has the count")
                await until(lambda: lag_of(copy) == 0, "the copy knows that it has everything")
                metadata = copy.query_metadata_for_key("counts", b"k")
                assert metadata == KeyMetadata(0, active.config.application_server, (copy.config.application_server,))
                assert active.query_metadata_for_key("counts", b"k") == metadata
            await until(lambda: is_answered(two, 5), "the last instance is the owner")


def is_answered(streams: Streams, count: int, *, stale: bool = False) -> bool:
    result = streams.query("counts", KeyQuery(b"k"), stale=stale)
    return not result.failures and is_count(result, count)


def lag_of(streams: Streams) -> int | None:
    return streams.query("counts", KeyQuery(b"k"), stale=True).partitions[0].lag


def owners(world: World, instances: Mapping[str, Streams]) -> dict[str, int]:
    """How many partitions each instance has, if all agree on that, and answer for them; else nothing."""
    found: dict[str, set[int]] = {}
    for key in world.expected:
        named = {one.query_metadata_for_key("counts", key) for one in instances.values()}
        active = {one.active for one in named}
        if len(named) > 1 or "" in active or instances[active.pop()].query("counts", KeyQuery(key)).failures:
            return {}
        for metadata in named:
            found.setdefault(metadata.active, set()).add(metadata.partition)
    return {name: len(partitions) for name, partitions in found.items()}


def are_whole(world: World, instances: Mapping[str, Streams]) -> bool:
    """Whether the rows of all instances together are those expected, and what one lacks another one has."""
    results = {name: one.query("counts", RangeQuery()) for name, one in instances.items()}
    rows = [(row.key, row.value) for result in results.values() for row in result.rows]
    count = sum(len(result.partitions) for result in results.values())
    for result in results.values():
        if sorted([*result.partitions, *(one.partition for one in result.failures)]) != list(range(count)):
            return False
        for failure in result.failures:
            if failure.owner not in results or failure.partition not in results[failure.owner].partitions:
                return False
    return sorted(rows) == sorted(world.expected.items())


def test_global_table_is_queried_whole_on_every_instance(queried: Queried) -> None:
    rows = [row_of(b"a", b"1", 5), row_of(b"b", b"2", 6), row_of(b"c", b"3", 7)]
    queried.table.apply(rows, {0: 3}, 1)
    found = queried.executor.execute("planes", RangeQuery(b"b", limit=1), value=TEXT)
    assert found.rows == [QueryRow(b"b", "2", 6)] and found.more and not found.failures
    assert {partition: state.lag for partition, state in found.partitions.items()} == {0: 0, 1: 7, 2: None}
    assert queried.executor.execute("planes", KeyQuery(b"c"), value=TEXT).row == QueryRow(b"c", "3", 7)
    assert queried.executor.execute("planes", KeyQuery(b"d"), value=TEXT).row is None
    assert queried.executor.metadata("planes", b"a") == KeyMetadata(-1, "here:80", ())
    with pytest.raises(ValueError, match="has no windows"):
        queried.executor.execute("planes", WindowQuery())
    with pytest.raises(ValueError, match="did you mean planes"):
        queried.executor.execute("plane", KeyQuery(b"a"))
