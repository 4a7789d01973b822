"""Timers of keys: an application that says which keys were silent, in one task, and the index of timers by time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.context import Clock, Context, Handler, Timer
from anabranch.clients.streams.failures import SKIP, RecordFailed
from anabranch.clients.streams.serdes import JSON
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import FIRED_MAX, Task
from anabranch.clients.streams.timers import TaskTimers
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import SentRecord, TopologyTestDriver
from examples import silence as example
from tests.clients.streams.test_topology import Rows

HOUR_MS = 3_600_000


def watch(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
    assert key is not None
    now_ms = context.timestamp_ms if value != "wall" else context.now_ms
    context.timers("silence").set(key, now_ms + HOUR_MS)


def alert(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
    forward(key, due_ms)


def silence(clock: Clock = Clock.STREAM_TIME) -> Topology:
    topology = Topology()
    watched = topology.stream("in", value=JSON).process(watch, timers=[Timer("silence", alert, clock)])
    watched.to("alerts")
    return topology


def test_timer_of_stream_time_is_due_after_the_record_that_reaches_it() -> None:
    with TopologyTestDriver(silence()) as driver:
        driver.pipe("in", "a", 1, timestamp_ms=0, headers=[("h", b"")])
        driver.pipe("in", "b", 1, timestamp_ms=HOUR_MS - 1)
        assert driver.read("alerts") == []
        driver.pipe("in", "b", 1, timestamp_ms=HOUR_MS + 5)
        assert driver.read("alerts") == [SentRecord(b"a", HOUR_MS, HOUR_MS)], "at the due time, without headers"
        driver.pipe("in", "b", 1, timestamp_ms=10 * HOUR_MS)
        assert driver.read("alerts") == [], "the record of b itself sets its timer anew"


def test_timer_of_wall_clock_time_is_due_when_the_clock_reaches_it() -> None:
    with TopologyTestDriver(silence(Clock.WALL_CLOCK_TIME), now_ms=500) as driver:
        driver.pipe("in", "a", "wall", timestamp_ms=0)
        driver.pipe("in", "b", "wall", timestamp_ms=99 * HOUR_MS)
        driver.advance(HOUR_MS - 1)
        assert driver.read("alerts") == []
        driver.advance(1)
        assert [row.key for row in driver.read("alerts")] == [b"a", b"b"]
        driver.advance(HOUR_MS)
        assert driver.read("alerts") == []
        with pytest.raises(ValueError, match="time does not go back"):
            driver.advance(-1)


def test_timer_goes_on_in_the_task_that_opens_its_store_next(tmp_path: Path) -> None:
    part = silence().build("app").subtopologies[0]

    def task() -> Task:
        return Task(TaskId(0, 3), "app", part, TaskDisk(tmp_path, part.stores), state=State.CATCHING_UP)

    def record(key: bytes, timestamp_ms: int) -> ConsumerRecord:
        return ConsumerRecord("in", 3, 0, timestamp_ms, key, b"1", (), -1)

    first = task()
    first.run()
    first.process([record(b"a", 0), record(b"b", 7)])
    assert first.state_manager.changed
    first.on_committed({"silence": [0, 1]}, transactional=False)
    first.close()
    second = task()
    second.run()
    sent = second.process([record(b"c", HOUR_MS + 3)])
    assert [(row.key, row.timestamp_ms) for row in sent] == [(b"a", HOUR_MS)]
    second.on_aborted()  # the alert is void: its transaction was aborted
    second.run()
    sent = second.process([record(b"c", HOUR_MS + 7)])
    assert [row.key for row in sent] == [b"a", b"b"]
    second.close()


def test_record_that_fails_makes_no_timer_due() -> None:
    with TopologyTestDriver(silence(), processing_handler=SKIP) as driver:
        driver.pipe("in", "a", 1, timestamp_ms=0)
        driver.pipe("in", None, 1, timestamp_ms=900 * HOUR_MS)
        assert driver.read("alerts") == []
        driver.pipe("in", "b", 1, timestamp_ms=HOUR_MS)
        assert driver.read("alerts") == [SentRecord(b"a", HOUR_MS, HOUR_MS)]


def test_timers_are_undone_with_a_record_that_fails() -> None:
    def fragile(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
        assert key is not None
        context.timers("t").set(key, value)
        if value < 0:
            raise ValueError("negative")

    topology = Topology()
    topology.stream("in", value=JSON).process(fragile, timers=[Timer("t", alert)]).to("out")
    with TopologyTestDriver(topology, processing_handler=SKIP) as driver:
        driver.pipe("in", "a", 50, timestamp_ms=0)
        driver.pipe("in", "a", -1, timestamp_ms=10)
        assert driver.read("out") == []
        driver.pipe("in", "b", 1000, timestamp_ms=60)
        assert driver.read("out") == [SentRecord(b"a", 50, 50)]


@pytest.mark.parametrize("handler", [SKIP, "fail"])
def test_timer_whose_function_raises_ends_the_instance_or_is_skipped_once(handler: str) -> None:
    def broken(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
        forward(key, "half")
        raise KeyError("no such row")

    topology = Topology()
    topology.stream("in", value=JSON).process(watch, timers=[Timer("silence", broken)]).to("out")
    with TopologyTestDriver(topology, processing_handler=handler) as driver:
        driver.pipe("in", "a", 1, timestamp_ms=0)
        if handler == SKIP:
            driver.pipe("in", "b", 1, timestamp_ms=HOUR_MS)
            assert driver.store("silence").get(b"a") is None
        else:
            with pytest.raises(RecordFailed, match=r"the timer silence of key b'a', due at 3600000, .*no such row"):
                driver.pipe("in", "b", 1, timestamp_ms=HOUR_MS)
        assert driver.read("out") == []


def test_timer_that_sets_itself_for_the_same_time_is_due_in_the_next_round() -> None:
    def again(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
        forward(key, due_ms)
        context.timers("silence").set(key, due_ms)

    topology = Topology()
    topology.stream("in", value=JSON).process(watch, timers=[Timer("silence", again)]).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("in", "a", 1, timestamp_ms=0)
        for rounds in (1, 2):
            driver.pipe("in", "b", 1, timestamp_ms=HOUR_MS)
            assert len(driver.read("out")) == 1, rounds


def test_timers_that_go_on_periodically_catch_up_in_order() -> None:
    def tick(context: Context, key: bytes, due_ms: int, forward: Handler) -> None:
        forward(key, due_ms)
        context.timers("silence").set(key, due_ms + HOUR_MS)

    topology = Topology()
    topology.stream("in", value=JSON).process(watch, timers=[Timer("silence", tick)]).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("in", "a", 1, timestamp_ms=0)
        driver.pipe("in", "b", 1, timestamp_ms=1)
        driver.pipe("in", "b", 1, timestamp_ms=2 * HOUR_MS)
        rows = [(row.key, row.value) for row in driver.read("out")]
        assert rows == [(b"a", HOUR_MS), (b"a", 2 * HOUR_MS)]


def test_a_round_of_the_wall_clock_is_limited_and_the_rest_follows(tmp_path: Path) -> None:
    topology = Topology()
    topology.stream("in", value=JSON).process(watch, timers=[Timer("silence", alert, Clock.WALL_CLOCK_TIME)]).to("out")
    part = topology.build("app").subtopologies[0]
    task = Task(TaskId(0, 3), "app", part, TaskDisk(tmp_path, part.stores), state=State.CATCHING_UP)
    task.run()
    task.process([ConsumerRecord("in", 3, at, 0, b"%d" % at, b"1", (), -1) for at in range(FIRED_MAX + 1)])
    assert len(task.punctuate(HOUR_MS)) == FIRED_MAX
    assert len(task.punctuate(HOUR_MS)) == 1
    task.close()


def test_store_of_timers_belongs_to_one_step() -> None:
    topology = Topology()
    stream = topology.stream("in", value=JSON)
    for _ in range(2):
        stream.process(watch, timers=[Timer("silence", alert)])
    with pytest.raises(ValueError, match="two steps use the store 'silence'"):
        topology.build("app")


def test_example_alerts_once_when_a_sensor_is_silent_and_when_it_is_back() -> None:
    with TopologyTestDriver(example.topology()) as driver:
        driver.pipe("readings", "s1", {"celsius": 20})
        driver.advance(example.SILENT_AFTER_MS // 2)
        driver.pipe("readings", "s1", {"celsius": 21})
        driver.advance(example.SILENT_AFTER_MS - 1)
        assert driver.read("alerts") == []
        driver.advance(1)
        driver.advance(example.SILENT_AFTER_MS)
        driver.pipe("readings", "s1", {"celsius": 22})
        assert [row.value for row in driver.read("alerts")] == ["silent", "back"]


@pytest.mark.parametrize("seed", range(20))
def test_due_timers_are_those_of_a_search_of_the_whole_store(seed: int) -> None:
    rng = random.Random(seed)
    rows: Any = Rows()
    timers = TaskTimers(rows, Clock.STREAM_TIME, lambda key, due_ms: None)
    expected: dict[bytes, int] = {}
    now_ms = 0
    for _ in range(400):
        key = b"k%d" % rng.randrange(12)
        match rng.randrange(6):
            case 0 | 1 | 2:
                expected[key] = now_ms + rng.randrange(1, 30)
                timers.set(key, expected[key])
            case 3:
                expected.pop(key, None)
                timers.cancel(key)
            case 4:
                timers.load()
            case 5:
                now_ms += rng.randrange(15)
                due = sorted((due_ms, key) for key, due_ms in expected.items() if due_ms <= now_ms)
                fired = []
                while (one := timers.take_due(now_ms)) is not None:
                    fired.append((one[1], one[0]))
                assert fired == due
                for _, key in due:
                    del expected[key]
        assert timers.due_ms(key) == expected.get(key)
        assert len(timers._heap) <= 40, "entries that do not count are dropped"
