"""A task has one owner, and a new coordinator continues where the last one stopped.

Method: one group by hand, read anew from its records after each step; and random schedules of members that come, beat,
die and leave under coordinators that fail over, in which no task ever has two owners and all comes to rest.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.broker.coordinators.streams_groups import streams_heartbeat
from anabranch.broker.coordinators.streams_groups.configured_topology import (
    ASSIGNMENT_DELAYED,
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
)
from anabranch.broker.coordinators.streams_groups.streams_decision import StreamsAnswer, StreamsDecision
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup, StreamsGroupState
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, STANDBY, each
from anabranch.protocol.apis.streams_group_heartbeat import TaskIds, TaskOffset
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.consumer_groups.world import settle
from tests.broker.coordinators.streams_groups.world import (
    COUNTS,
    PLAIN,
    Client,
    Driver,
    active,
    driver,
    joined,
    subtopology,
)
from tests.cases import costly

__all__ = ["driver"]


def codes(answer: StreamsAnswer) -> list[int]:
    return [code for code, _ in answer.status]


# --- joining and staying -----------------------------------------------------------------------------------------


def test_the_first_member_has_all_tasks_in_the_second_epoch(driver: Driver) -> None:
    a = Client(driver, "a")
    assert a.join() == StreamsAnswer(member_id="a", epoch=2, interval_ms=5000, assigned=active(s0=(0, 1, 2, 3)))
    assert driver.group.state is StreamsGroupState.STABLE
    assert a.beat().assigned is None, "it knows by now"


def test_task_is_reassigned_only_after_its_revocation(driver: Driver) -> None:
    a, b = Client(driver, "a"), Client(driver, "b")
    a.join()
    assert b.join().assigned == NO_TASKS
    assert driver.group.state is StreamsGroupState.RECONCILING
    response = a.beat()
    assert (response.epoch, response.assigned) == (2, active(s0=(0, 1)))
    driver.fail_over()
    assert b.beat().assigned is None, "a has not said that it gave them up"
    driver.fail_over()
    assert a.beat().epoch == 3
    assert b.beat().assigned == active(s0=(2, 3))
    assert driver.group.state is StreamsGroupState.STABLE


def test_application_is_assigned_no_tasks_until_its_internal_topics_exist(driver: Driver) -> None:
    a = Client(driver, "a", COUNTS)
    response = a.join()
    assert codes(response) == [MISSING_INTERNAL_TOPICS] and response.assigned == NO_TASKS
    assert driver.topics.known.keys() == {"t", "words", "counts"}, "they are named, to be made"
    response = a.beat()
    assert response.assigned == active(s0=range(4), s1=range(4)) and codes(response) == []


def test_initial_rebalance_delay_gathers_the_first_members() -> None:
    driver = Driver(settings=StreamsSettings(initial_delay_ms=3_000))
    driver.topics.make("t", 4)
    a, b = Client(driver, "a"), Client(driver, "b")
    response = a.join()
    assert (response.epoch, response.assigned, codes(response)) == (1, NO_TASKS, [ASSIGNMENT_DELAYED])
    assert codes(b.join()) == [ASSIGNMENT_DELAYED] and driver.group.state is StreamsGroupState.ASSIGNING
    driver.now_ms += 2_999
    assert driver.expire() == [] and codes(a.beat()) == [ASSIGNMENT_DELAYED]
    driver.now_ms += 1
    assert driver.expire() == []
    assert a.beat().assigned == active(s0=(0, 2))
    assert b.beat().assigned == active(s0=(1, 3)), "nothing has to move"
    c = Client(driver, "c")
    assert codes(c.join()) == [], "nobody waits in a group that runs"


def test_grown_source_topic_adds_tasks(driver: Driver) -> None:
    (a,) = joined(driver, "a")
    driver.topics.make("t", 5)
    assert a.beat().assigned == active(s0=range(5))
    assert a.epoch == 3


def test_shrunk_source_topic_removes_tasks(driver: Driver) -> None:
    (a,) = joined(driver, "a")
    driver.topics.make("t", 2)
    a.said = None  # as after a failure, it says all that it has
    assert a.beat().assigned == active(s0=(0, 1))
    assert a.beat().epoch == 3


def test_incorrectly_partitioned_topics_revoke_all_tasks(driver: Driver) -> None:
    (a,) = joined(driver, "a", parts=COUNTS)
    settle(a)
    driver.topics.make("t", 5)
    response = a.beat()
    assert codes(response) == [INCORRECTLY_PARTITIONED_TOPICS] and response.assigned == NO_TASKS
    assert "words has 4" in response.status[0][1] or "counts has 4" in response.status[0][1]
    assert driver.group.state is StreamsGroupState.NOT_READY
    driver.topics.make("words", 5)
    driver.topics.make("counts", 5)
    settle(a)
    assert a.owned == active(s0=range(5), s1=range(5)), "somebody has made room"


def test_deleted_source_topic_revokes_all_tasks(driver: Driver) -> None:
    (a,) = joined(driver, "a")
    del driver.topics.known["t"]
    driver.topics.image = object()
    assert codes(a.beat()) == [MISSING_SOURCE_TOPICS] and a.owned == NO_TASKS


def test_topology_is_not_recomputed_while_topics_are_unchanged(driver: Driver) -> None:
    (a,) = joined(driver, "a")
    seen = driver.group.configured
    a.beat()
    assert driver.group.configured is seen
    driver.topics.make("other", 1)
    a.beat()
    assert driver.group.configured is not seen and driver.group.epoch == 2, "looked at, and nothing of it is new"


def test_standby_task_becomes_active_on_the_other_member(driver: Driver) -> None:
    driver.settings = StreamsSettings(standbys=1)
    a, b = joined(driver, "a", "b", parts=COUNTS)
    settle(a, b)
    for one, other in ((a, b), (b, a)):
        copies = {(name, index) for role, name, index in each(one.owned) if role is STANDBY}
        mine = {(name, index) for role, name, index in each(other.owned) if role is ACTIVE and name == "1"}
        assert copies == mine, "of what has a state"
    b.leave()
    response = a.beat()
    assert response.assigned is not None and not any(role is STANDBY for role, _, _ in each(response.assigned))
    settle(a)
    assert a.owned == active(s0=range(4), s1=range(4))


def test_raised_number_of_standby_replicas_causes_a_rebalance(driver: Driver) -> None:
    a, b = joined(driver, "a", "b", parts=COUNTS)
    settle(a, b)
    epoch = driver.group.epoch
    driver.settings = StreamsSettings(standbys=1)
    settle(a, b)
    assert driver.group.epoch == epoch + 1
    assert all(any(role is STANDBY for role, _, _ in each(one.owned)) for one in (a, b))


def test_task_is_not_assigned_while_another_thread_of_the_process_has_its_standby(driver: Driver) -> None:
    """An instance has one copy of a task's state: the copying thread must close it first."""
    driver.settings = StreamsSettings(standbys=1)
    a1, b1 = Client(driver, "a1", COUNTS, "a"), Client(driver, "b1", COUNTS, "b")
    a1.join()
    b1.join()
    settle(a1, b1)
    a2 = Client(driver, "a2", COUNTS, "a")
    a2.join()
    b1.leave()
    for _ in range(8):
        for one in (a2, a1, a2):
            one.beat()
            holders: dict[tuple[str, int], int] = {}
            for member in driver.group.members.values():
                for tasks in (member.assigned, member.revoking):
                    for _, name, index in each(tasks):
                        holders[name, index] = holders.get((name, index), 0) + 1
            assert set(holders.values()) <= {1}
    settle(a1, a2)
    assert sum(len(indexes) for one in (a1, a2) for indexes in one.owned.values()) == 8


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"rack_id": ""},
        {"instance_id": "one"},
        {"rebalance_timeout_ms": -1},
        {"topology": None},
        {"active_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"standby_tasks": None},
        {"warmup_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"task_offsets": [TaskOffset(subtopology_id="0", partition=0, offset=1)]},
        {"task_end_offsets": []},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"member_epoch": 1},
    ],
    ids=str,
)
def test_malformed_heartbeat_is_refused(driver: Driver, wrong: dict[str, Any]) -> None:
    request = Client(driver, "a").request()
    for name, content in wrong.items():
        setattr(request, name, content)
    with pytest.raises(KafkaError) as refused:
        driver.send(request)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert driver.journal == []


def test_duplicate_subtopology_in_owned_tasks_is_accepted(driver: Driver) -> None:
    a, _ = joined(driver, "a", "b")
    a.beat()
    both = [TaskIds(subtopology_id="0", partitions=[0, 1, 3]), TaskIds(subtopology_id="0", partitions=[0, 1])]
    assert a.beat(active_tasks=both).epoch == 2, "it still has one that it is to give up"


def test_source_topic_regex_is_refused(driver: Driver) -> None:
    part = subtopology("0", "t")
    part.source_topic_regex = ["t.*"]
    assert Client(driver, "a", [part]).refused() is ErrorCode.INVALID_REQUEST


def test_member_with_wrong_epoch_is_fenced(driver: Driver) -> None:
    a = Client(driver, "a", epoch=5)
    assert a.refused() is ErrorCode.UNKNOWN_MEMBER_ID
    a.join()
    assert a.refused(member_epoch=a.epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    a.beat()
    assert a.refused(member_epoch=a.epoch - 1) is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it has"
    driver.topics.make("t", 5)
    a.beat()
    a.owned, a.said = active(s0=range(4)), None
    assert a.beat(member_epoch=2).epoch == 3, "its last answer was lost"
    a.owned, a.said = active(s0=(0, 7)), None
    assert a.refused(member_epoch=2) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("tasks", [active(s0=(4,)), active(s0=(-1,)), active(s7=(0,))], ids=str)
def test_owned_task_outside_the_topology_is_refused(driver: Driver, tasks: Any) -> None:
    (a,) = joined(driver, "a")
    a.owned = tasks
    assert a.refused() is ErrorCode.INVALID_REQUEST


def test_group_uses_the_topology_of_its_first_member(driver: Driver) -> None:
    a, b = Client(driver, "a"), Client(driver, "b", [subtopology("1", "t")])
    a.join(topology_epoch=3)
    assert b.refused(topology_epoch=3) is ErrorCode.INVALID_REQUEST
    assert Client(driver, "c").refused(topology_epoch=4) is ErrorCode.INVALID_REQUEST
    assert codes(b.join(topology_epoch=2)) == [STALE_TOPOLOGY], "it may stay, and gets tasks of the newer one"


def test_join_of_a_full_group_is_refused(driver: Driver) -> None:
    driver.settings = StreamsSettings(size_max=1)
    (a,) = joined(driver, "a")
    assert Client(driver, "b").refused() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().epoch == 2, "who is in may begin again"


# --- going -------------------------------------------------------------------------------------------------------


def test_tasks_of_leaving_and_expired_members_are_reassigned(driver: Driver) -> None:
    a, b, c = joined(driver, *"abc")
    settle(a, b, c)
    assert b.leave() == StreamsAnswer(member_id="b", epoch=-1)
    driver.now_ms += 44_999
    a.beat()
    assert driver.expire() == []
    driver.now_ms += 1
    assert driver.expire() == ["c"]
    settle(a)
    assert a.owned == active(s0=range(4))
    a.leave()
    assert driver.group.state is StreamsGroupState.EMPTY
    assert a.join().assigned == active(s0=range(4)), "the group goes on with its epochs"
    assert a.epoch > 3


def test_member_that_does_not_revoke_in_time_is_removed(driver: Driver) -> None:
    a, b = joined(driver, "a", "b")
    a.beat()
    for _ in range(2):
        driver.now_ms += 30_000
        b.beat()
        a.said = a.owned
        a.beat()
    assert driver.expire() == ["a"]
    assert b.beat().assigned == active(s0=range(4))


def test_shutdown_request_of_a_member_shuts_down_the_application(driver: Driver) -> None:
    a, b = joined(driver, "a", "b")
    assert codes(a.beat(shutdown_application=True)) == [SHUTDOWN_APPLICATION]
    assert codes(b.beat()) == [SHUTDOWN_APPLICATION]
    a.leave()
    assert codes(b.beat()) == [SHUTDOWN_APPLICATION]
    b.leave()
    assert codes(a.join()) == [], "who starts anew is not meant"


def test_tombstones_of_a_deleted_group_remove_its_state(driver: Driver) -> None:
    Client(driver, "a", COUNTS).join()
    for record in streams_heartbeat.tombstones(driver.group):
        driver.group.apply(record)
    fresh = StreamsGroup("g")
    assert all(
        getattr(driver.group, name) == getattr(fresh, name) for name in ("epoch", "members", "targets", "topology")
    )
    assert driver.group.assignment_epoch == 0 and driver.group._holders == {}


# --- random schedules --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(12), *costly(range(12, 40))])
def test_random_histories_give_each_task_one_owner_and_settle(seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver(settings=StreamsSettings(standbys=seed % 3), replays=False)
    driver.topics.make("t", 3)
    parts = COUNTS if seed % 2 else PLAIN
    clients: list[Client] = []
    for step in range(150):
        what = rng.choice(["join", "beat", "beat", "beat", "leave", "die", "fail over", "lose", "grow"])
        one = rng.choice(clients) if clients else None
        if one is None or (what == "join" and len(clients) < 5):
            clients.append(Client(driver, f"m{step}", parts, process_id=rng.choice("pqr")))
            clients[-1].join()
        elif what == "beat":
            beat_or_begin_anew(one)
        elif what == "leave":
            one.leave()
            clients.remove(one)
        elif what == "die":
            decision = StreamsDecision(driver.group)
            streams_heartbeat.remove(decision, [driver.group.member(one.member_id)])
            driver.take(decision)
            clients.remove(one)
        elif what == "fail over":
            driver.fail_over()
        elif what == "lose":
            answer_is_lost(one)
        elif what == "grow" and parts is PLAIN and len(driver.topics.known["t"]) < 8:
            driver.topics.make("t", len(driver.topics.known["t"]) + 1)
        check_owners(driver.group, clients)
    for one in clients:
        beat_or_begin_anew(one)
    if clients:
        settle(*clients, rounds=20)
        owned = sorted((name, index) for one in clients for role, name, index in each(one.owned) if role is ACTIVE)
        assert driver.group.configured is not None
        tasks = driver.group.configured.subtopologies
        assert owned == sorted((name, index) for name, one in tasks.items() for index in range(one.task_count))


def beat_or_begin_anew(client: Client) -> None:
    try:
        client.beat()
    except KafkaError as error:
        assert error.code is ErrorCode.FENCED_MEMBER_EPOCH
        client.join()


def answer_is_lost(client: Client) -> None:
    """The client repeats everything in its next heartbeat."""
    try:
        client.driver.send(client.request())
    except KafkaError as error:
        assert error.code is ErrorCode.FENCED_MEMBER_EPOCH
    client.said = None


def check_owners(group: StreamsGroup, clients: list[Client]) -> None:
    """Neither by the records nor by what members do has a task two owners."""
    for told in (
        [one.assigned for one in group.members.values()] + [one.revoking for one in group.members.values()],
        [one.owned for one in clients],
    ):
        owned = [(name, index) for tasks in told for role, name, index in each(tasks) if role is ACTIVE]
        assert len(owned) == len(set(owned)), group.describe()
