"""The partition assignor: subscriptions, the leader's assignment, and the members' use of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_partition_assignor import (
    REJOIN_NOW,
    MemberAssignment,
    MemberView,
    RebalanceProtocol,
    still_owned,
)
from anabranch.clients.metadata import ClusterMetadata, Node, Partition, Topic
from anabranch.clients.streams.assignment_info import (
    AssignmentInfo,
    AssignorError,
    Host,
    decode_assignment_info,
    encode_assignment_info,
)
from anabranch.clients.streams.group import Group, end_sums_of, lag_of
from anabranch.clients.streams.partition_grouper import TaskAssignmentError, TopicsInfo
from anabranch.clients.streams.sticky_task_assignor import assign_sticky
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks, StreamsMember, StreamsPartitionAssignor
from anabranch.clients.streams.subscription_info import (
    RUNNING,
    UNKNOWN_SUM,
    SubscriptionInfo,
    decode_subscription_info,
    encode_subscription_info,
)
from anabranch.clients.streams.task_assignor import AssignorConfig
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.threads import Threads
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.streams_protocol import LATEST_VERSION, NO_REBALANCE_MS
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.wire import ZERO_UUID
from tests.clients.streams.group_simulation import run

NOW_MS = 1_700_000_000_000
TOPOLOGY = [TopicsInfo(source_topics=frozenset({"in"}), changelog_topics=frozenset({"counts"}))]


def metadata(**counts: int) -> ClusterMetadata:
    def partitions(count: int) -> dict[int, Partition]:
        return {index: Partition(index, 0, 0, (), (), ErrorCode.NONE) for index in range(count)}

    return ClusterMetadata(topics={name: Topic(name, ZERO_UUID, partitions(count)) for name, count in counts.items()})


class Cluster:
    """The leader's tools, with changelogs that end at 100,000."""

    def __init__(self) -> None:
        self.prepared: list[Mapping[str, int]] = []
        self.existing: set[str] = set()
        self.asked: list[TopicPartition] = []
        self.unreachable = False

    async def prepare_topics(self, counts: Mapping[str, int]) -> Collection[str]:
        self.prepared.append(counts)
        made = counts.keys() - self.existing
        self.existing |= made
        return made

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        self.asked += partitions
        return None if self.unreachable else dict.fromkeys(partitions, 100_000)


class Thread:
    """One member and its assignor."""

    def __init__(self, process: int, name: str, cluster: Cluster, **settings: Any) -> None:
        self.name = name
        self.sums: dict[TaskId, int] = {}
        self.owned: tuple[TopicPartition, ...] = ()
        self.tasks = AssignedTasks()
        member = {key: settings.pop(key) for key in ("end_point", "tags", "latest_version") if key in settings}
        self.assignor = StreamsPartitionAssignor(
            StreamsMember(process_id=bytes([process]) * 16, **member),
            settings.pop("topology", TOPOLOGY),
            cluster,
            offset_sums=lambda: self.sums,
            on_tasks=self.take,
            now_ms=lambda: NOW_MS,
            **settings,
        )

    def take(self, tasks: AssignedTasks) -> None:
        self.tasks = tasks

    def view(self) -> MemberView:
        return MemberView(self.name, ("in",), self.owned, self.assignor.subscription_user_data(("in",)))

    def lead(self, *others: Thread, cluster: ClusterMetadata | None = None) -> dict[str, MemberAssignment]:
        answers = run(self.assignor.assign(cluster or metadata(**{"in": 4}), [one.view() for one in (self, *others)]))
        return dict(answers)

    def runs(self, *partitions: int) -> None:
        """It has run these tasks for some time."""
        self.sums |= dict.fromkeys((TaskId(0, index) for index in partitions), RUNNING)
        self.owned += tuple(TopicPartition("in", index) for index in partitions)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def read(answer: MemberAssignment) -> AssignmentInfo:
    return decode_assignment_info(answer.user_data or b"")


def test_assignor_is_named_stream_and_supports_both_protocols(cluster: Cluster) -> None:
    assignor = Thread(1, "a", cluster).assignor
    assert assignor.name == "stream"
    assert assignor.protocols == {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}


def test_subscription_has_process_and_offset_sums_and_is_always_unique(cluster: Cluster) -> None:
    thread = Thread(7, "a", cluster, end_point="h:80", tags={"zone": "x"})
    thread.sums = {TaskId(0, 1): 55}
    said = [thread.assignor.subscription_user_data(("in",)) for _ in range(300)]
    info = decode_subscription_info(said[0])
    assert (info.process_id, info.user_end_point, info.client_tags) == (b"\7" * 16, "h:80", {"zone": "x"})
    assert info.task_offset_sums == thread.sums
    assert all(one != another for one, another in itertools.pairwise(said))


def test_leader_creates_topics_and_requests_end_offsets_of_existing_ones_only(cluster: Cluster) -> None:
    thread = Thread(1, "a", cluster)
    thread.lead()
    assert cluster.prepared == [{"counts": 4}]
    assert cluster.asked == []
    thread.lead()
    assert cluster.asked == [TopicPartition("counts", index) for index in range(4)]


def test_source_topic_that_is_its_own_changelog_is_not_created(cluster: Cluster) -> None:
    table = [TopicsInfo(source_topics=frozenset({"in"}), changelog_topics=frozenset({"in"}))]
    Thread(1, "a", cluster, topology=table).lead()
    assert cluster.prepared == []
    assert cluster.asked == [TopicPartition("in", index) for index in range(4)]


def test_tasks_are_balanced_and_every_member_gets_all_hosts(cluster: Cluster) -> None:
    one, other = Thread(1, "a", cluster, end_point="h:1"), Thread(2, "b", cluster, end_point="h:2")
    answers = one.lead(other)
    assert one.assignor.on_assignment(answers["a"], 5) is None
    assert other.assignor.on_assignment(answers["b"], 5) is None
    assert sorted([*one.tasks.active, *other.tasks.active]) == [TaskId(0, index) for index in range(4)]
    assert one.tasks.generation == 5
    assert one.tasks.partitions_by_host == other.tasks.partitions_by_host
    assert set(one.tasks.partitions_by_host[Host("h", 2)]) == set(answers["b"].partitions)


def test_new_member_warms_up_and_leader_schedules_probing_rebalance(cluster: Cluster) -> None:
    old, new = Thread(1, "a", cluster), Thread(2, "b", cluster)
    cluster.existing.add("counts")
    old.runs(0, 1, 2, 3)
    answers = old.lead(new)
    assert old.assignor.on_assignment(answers["a"], 1) == NOW_MS + 600_000
    assert new.assignor.on_assignment(answers["b"], 1) is None
    assert (len(old.tasks.active), len(new.tasks.active), len(new.tasks.standby)) == (4, 0, 2)
    new.sums = dict.fromkeys(new.tasks.standby, 95_000)
    answers = old.lead(new)
    assert new.assignor.on_assignment(answers["b"], 2) == REJOIN_NOW, "what it waits for has to be given up first"
    assert not new.tasks.active
    assert sorted(new.tasks.standby) == sorted(new.sums), "its copies stay open meanwhile"
    assert len(read(answers["a"]).active_tasks) == 2
    old.owned = answers["a"].partitions
    for task in new.sums:
        old.sums[task] = 100_000
    answers = old.lead(new)
    assert new.assignor.on_assignment(answers["b"], 3) is None
    assert sorted(new.tasks.active) == sorted(new.sums)
    assert old.assignor.last_led is not None and old.assignor.last_led.stable


def test_partition_still_owned_by_another_member_is_not_assigned(cluster: Cluster) -> None:
    threads = [Thread(1 + number // 2, f"m{number}", cluster, assignor=assign_sticky) for number in range(4)]
    threads[0].runs(0, 1, 2, 3)
    answers = threads[1].lead(*threads[2:], threads[0])
    moved = still_owned([thread.view() for thread in threads], {one: two.partitions for one, two in answers.items()})
    assert not moved
    assert len(answers["m0"].partitions) == 1
    assert sum(len(answer.partitions) for answer in answers.values()) == 1


def test_task_with_one_partition_owned_elsewhere_waits_as_a_whole(cluster: Cluster) -> None:
    joined = [TopicsInfo(source_topics=frozenset({"in", "side"}))]
    one, other = Thread(1, "a", cluster, topology=joined), Thread(2, "b", cluster, topology=joined)
    other.owned = (TopicPartition("side", 0), TopicPartition("in", 1), TopicPartition("side", 1))
    answers = one.lead(other, cluster=metadata(**{"in": 2, "side": 2}))
    assert answers["a"].partitions == ()
    assert read(answers["a"]).next_rebalance_ms == 0
    assert set(answers["b"].partitions) == {TopicPartition("in", 1), TopicPartition("side", 1)}


def test_one_thread_of_leader_schedules_probing_rebalance(cluster: Cluster) -> None:
    threads = [Thread(1, "a", cluster), Thread(1, "b", cluster), Thread(2, "c", cluster)]
    cluster.existing.add("counts")
    threads[0].runs(0, 1)
    threads[1].runs(2, 3)
    answers = threads[1].lead(threads[0], threads[2])
    times = {name: read(answer).next_rebalance_ms for name, answer in answers.items()}
    assert times == {"a": NOW_MS + 600_000, "b": NO_REBALANCE_MS, "c": NO_REBALANCE_MS}


def test_member_that_rejoins_at_once_schedules_no_probing_rebalance(cluster: Cluster) -> None:
    threads = [Thread(1, "a", cluster), Thread(1, "b", cluster), Thread(2, "c", cluster)]
    cluster.existing.add("counts")
    threads[1].runs(0, 1, 2, 3)
    answers = threads[0].lead(*threads[1:])
    times = {name: read(answer).next_rebalance_ms for name, answer in answers.items()}
    assert times == {"a": 0, "b": NO_REBALANCE_MS, "c": NO_REBALANCE_MS}
    led = threads[0].assignor.last_led
    assert led is not None and led.waiting == {"a"} and led.probing_at_ms is not None


def test_stateless_tasks_stay_with_their_owners(cluster: Cluster) -> None:
    stateless = [TopicsInfo(source_topics=frozenset({"in"}))]
    threads = [Thread(process, name, cluster, topology=stateless, assignor=assign_sticky) for process, name in
               ((1, "a"), (2, "b"))]  # fmt: skip
    for thread, indexes in zip(threads, ((0, 1), (2, 3)), strict=True):
        thread.owned = tuple(TopicPartition("in", index) for index in indexes)
    answers = threads[0].lead(threads[1])
    assert [answers[thread.name].partitions for thread in threads] == [thread.owned for thread in threads]


def test_without_end_offsets_tasks_stay_and_a_probing_rebalance_follows(cluster: Cluster) -> None:
    one, other = Thread(1, "a", cluster), Thread(2, "b", cluster)
    cluster.existing.add("counts")
    cluster.unreachable = True
    one.runs(0, 1, 2, 3)
    answers = other.lead(one)
    assert len(answers["a"].partitions) == 4
    assert read(answers["b"]).next_rebalance_ms == NOW_MS + 600_000
    sticky = Thread(2, "b", cluster, assignor=assign_sticky)
    assert len(sticky.lead(one)["a"].partitions) == 2, "the sticky assignor does not go by lags anyway"


def test_missing_topic_is_reported_to_every_member(cluster: Cluster) -> None:
    one, other = Thread(1, "a", cluster), Thread(2, "b", cluster)
    answers = one.lead(other, cluster=metadata(other=1))
    assert other.assignor.on_assignment(answers["b"], 1) is None
    assert other.tasks.error is AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA
    assert one.assignor.last_led is not None and one.assignor.last_led.error is other.tasks.error


def test_malformed_subscription_is_an_error_for_all_that_names_member(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one = Thread(1, "a", cluster)
    answers = run(one.assignor.assign(metadata(**{"in": 1}), [one.view(), MemberView("bad", ("in",), (), b"\0\0")]))
    assert {read(answer).error_code for answer in answers.values()} == {AssignorError.ASSIGNMENT_ERROR}
    assert "subscription of bad" in caplog.text


def test_shutdown_request_of_one_member_reaches_all(cluster: Cluster) -> None:
    one, other = Thread(1, "a", cluster), Thread(2, "b", cluster)
    other.assignor.error = AssignorError.SHUTDOWN_REQUESTED
    answers = one.lead(other)
    one.assignor.on_assignment(answers["a"], 1)
    assert one.tasks.error is AssignorError.SHUTDOWN_REQUESTED


def test_repartition_topics_are_created_before_their_tasks(cluster: Cluster) -> None:
    topology = [
        TopicsInfo(source_topics=frozenset({"in"}), sink_topics=frozenset({"again"})),
        TopicsInfo(source_topics=frozenset({"again"}), repartition_topics={"again": None}),
    ]
    thread = Thread(1, "a", cluster, topology=topology)
    thread.assignor.on_assignment(thread.lead()["a"], 1)
    assert cluster.prepared == [{"again": 4}]
    assert len(thread.tasks.active) == 8


def in_racks(*racks: str | None) -> ClusterMetadata:
    """Partitions with one replica each, on brokers in these racks."""
    nodes = {number: Node(number, "h", 1, rack) for number, rack in enumerate(racks)}
    partitions = {index: Partition(index, index, 0, (index,), (index,), ErrorCode.NONE) for index in range(len(racks))}
    return ClusterMetadata(nodes=nodes, topics={"in": Topic("in", ZERO_UUID, partitions)})


def test_tasks_run_in_rack_of_their_partition_replicas(cluster: Cluster) -> None:
    config = AssignorConfig(rack_aware_assignment_strategy="min_traffic")
    threads = [Thread(number, name, cluster, config=config) for number, name in enumerate("ab")]

    def indexes(metadata: ClusterMetadata, *racks: str | None) -> list[list[int]]:
        members = [dataclasses.replace(thread.view(), rack=rack) for thread, rack in zip(threads, racks, strict=True)]
        answers = run(threads[0].assignor.assign(metadata, members))
        return [[one.partition for one in answers[thread.name].partitions] for thread in threads]

    assert indexes(in_racks("x", "x", "y", "y"), "x", "y") == [[0, 1], [2, 3]]
    assert indexes(in_racks("x", "x", "y", "y"), "y", "x") == [[2, 3], [0, 1]]
    assert indexes(in_racks("x", "x", "y", None), "x", "y") == [[0, 2], [1, 3]], "a broker does not say where it is"
    assert indexes(in_racks("x", "x", "y", "y"), "x", None) == [[0, 2], [1, 3]], "a member does not"


# -- versions ------------------------------------------------------------------------------------------------------


def rolling(cluster: Cluster, *threads: Thread) -> int:
    """Rebalance until no member requests another one."""
    for count in range(1, 10):
        answers = threads[0].lead(*threads[1:])
        outcomes = [one.assignor.on_assignment(answers[one.name], count) for one in threads]
        if outcomes == [None] * len(threads):
            return count
    raise AssertionError("versions never settle")


@pytest.mark.parametrize("old", range(3, LATEST_VERSION))
def test_group_uses_highest_common_version_under_any_leader(cluster: Cluster, old: int) -> None:
    for leader_is_new in (True, False):
        threads = [Thread(1, "a", cluster), Thread(2, "b", cluster, latest_version=old)]
        ordered = threads if leader_is_new else threads[::-1]
        assert rolling(cluster, *ordered) == 2
        assert [one.assignor.used_version for one in threads] == [old, old]
        restarted = Thread(2, "b", cluster)
        assert rolling(cluster, threads[0], restarted) <= 3
        assert [one.assignor.used_version for one in (threads[0], restarted)] == [LATEST_VERSION] * 2


def test_partitions_owned_by_member_of_newer_version_are_not_reassigned(cluster: Cluster) -> None:
    old, new = Thread(1, "a", cluster, latest_version=8), Thread(2, "b", cluster)
    new.runs(0, 1)
    answers = old.lead(new)
    assert read(answers["b"]).version == 8
    assert answers["b"].partitions, "it gets its share"
    assert not set(answers["a"].partitions) & set(new.owned)
    assert new.assignor.on_assignment(answers["b"], 1) == REJOIN_NOW
    assert new.assignor.used_version == 8


def test_member_with_no_version_in_common_with_newer_one_is_an_error(cluster: Cluster) -> None:
    old = encode_subscription_info(SubscriptionInfo(version=2, latest_supported_version=-1, process_id=b"x" * 16))
    group = Group([MemberView("old", (), (), old), MemberView("new", (), (), b"\0\0\0\x0c\0\0\0\x0c")])
    with pytest.raises(TaskAssignmentError, match="1 members have versions newer than 11, and another has version 2"):
        group.check_versions()


@pytest.mark.parametrize(
    ("version", "common", "complaint"),
    [(11, 11, "used version 9 with 11"), (9, 12, "all members support version 12")],
)
def test_inconsistent_assignment_of_leader_is_refused(
    cluster: Cluster, version: int, common: int, complaint: str
) -> None:
    thread = Thread(1, "a", cluster)
    thread.assignor.used_version = 9
    info = AssignmentInfo(version=version, commonly_supported_version=common)
    with pytest.raises(TaskAssignmentError, match=complaint):
        thread.assignor.on_assignment(MemberAssignment((), encode_assignment_info(info)), 1)


def test_partitions_without_tasks_are_refused(cluster: Cluster) -> None:
    wire = encode_assignment_info(AssignmentInfo())
    with pytest.raises(TaskAssignmentError, match="1 partitions for 0 active tasks"):
        Thread(1, "a", cluster).assignor.on_assignment(MemberAssignment((TopicPartition("in", 0),), wire), 1)
    with pytest.raises(DecodeError, match="too few for a version"):
        Thread(1, "a", cluster).assignor.on_assignment(MemberAssignment(), 1)


def test_member_whose_end_point_is_missing_in_assignment_rejoins(cluster: Cluster) -> None:
    thread = Thread(1, "a", cluster, end_point="here:2")
    for hosts, answer in (({Host("here", 1): ()}, REJOIN_NOW), ({Host("here", 2): ()}, None), ({}, None)):
        wire = encode_assignment_info(AssignmentInfo(partitions_by_host=hosts))
        assert thread.assignor.on_assignment(MemberAssignment((), wire), 1) == answer


# -- lags and threads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset_sum", "end_sum", "lag"),
    [(RUNNING, 5, RUNNING), (UNKNOWN_SUM, 5, UNKNOWN_SUM), (3, 10, 7), (10, 10, 0), (11, 10, 10), (0, 0, 0)],
)
def test_lag_is_end_sum_minus_offset_sum(offset_sum: int, end_sum: int, lag: int) -> None:
    assert lag_of(offset_sum, end_sum) == lag


def test_end_sums_add_up_changelog_end_offsets() -> None:
    first, second = TopicPartition("a", 0), TopicPartition("b", 0)
    changelogs = {TaskId(0, 0): (first, second)}
    assert end_sums_of(changelogs, {first: 3, second: 4}) == {TaskId(0, 0): 7}
    assert end_sums_of(changelogs, {first: 3}) == {TaskId(0, 0): 3}, "b was only just made"
    assert end_sums_of(changelogs, {first: 2**63 - 1, second: 4}) == {TaskId(0, 0): 2**63 - 1}
    assert end_sums_of(changelogs, None) == {TaskId(0, 0): UNKNOWN_SUM}


def test_threads_keep_previous_tasks_within_equal_shares() -> None:
    tasks = [TaskId(0, index) for index in range(5)]
    threads = Threads(["b", "a"], {"b": [tasks[4], tasks[3], tasks[2]], "a": []})
    shares = threads.share(tasks, stateful=True)
    assert shares == {"b": [tasks[4], tasks[3], tasks[2]], "a": [tasks[0], tasks[1]]}
    assert {len(share) for share in threads.share([TaskId(1, 0)], stateful=False).values()} == {0, 1}


def test_process_with_two_threads_gets_two_shares(cluster: Cluster) -> None:
    threads = [Thread(1, "a", cluster), Thread(1, "b", cluster), Thread(2, "c", cluster)]
    answers = threads[0].lead(*threads[1:], cluster=metadata(**{"in": 6}))
    assert {name: len(answer.partitions) for name, answer in answers.items()} == {"a": 2, "b": 2, "c": 2}


def test_standbys_have_source_partitions_of_their_tasks(cluster: Cluster) -> None:
    one, other = Thread(1, "a", cluster, config=AssignorConfig(num_standby_replicas=1)), Thread(2, "b", cluster)
    info = read(one.lead(other)["a"])
    assert len(info.standby_tasks) == 2
    assert all(partitions == (TopicPartition("in", task.partition),) for task, partitions in info.standby_tasks.items())
