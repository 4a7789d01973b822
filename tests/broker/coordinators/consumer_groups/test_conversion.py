"""Conversion between classic and KIP-848 groups: members, and refusals."""

from __future__ import annotations

import dataclasses
import random

import pytest

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.consumer_groups import conversion
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
from anabranch.broker.coordinators.consumer_groups.member import STABLE, UNREVOKED
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataMember, GroupMetadataValue
from tests.broker.coordinators.consumer_groups.test_classic_members import ClassicClient, driver
from tests.broker.coordinators.consumer_groups.world import Client, Topics, partitions


def member(
    name: str, indexes: list[int], user_data: bytes | None = None, *, owned: list[int] | None = None
) -> GroupMetadataMember:
    rows = [TopicPartitions(topic="t", partitions=indexes)]
    before = [TopicPartitions(topic="t", partitions=owned)] if owned else []
    return GroupMetadataMember(
        member_id=name,
        client_id="client",
        client_host="/1.2.3.4",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=encode_subscription(
            ConsumerProtocolSubscription(topics=["t"], user_data=None, owned_partitions=before)
        ),
        assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data)),
    )


VALUE = GroupMetadataValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="a",
    members=[member("a", [0, 1]), member("b", [2, 3])],
)


def classic(value: GroupMetadataValue = VALUE) -> ClassicGroup:
    return ClassicGroup.from_journal("g", value, GroupLimits(), random.Random(1), 500)


def topics() -> Topics:
    made = Topics()
    made.make("t", 4)
    return made


def test_upgraded_group_keeps_assignments_of_members() -> None:
    decision = conversion.upgrade(classic(), topics(), ConsumerGroupLimits(), 1_000)
    group = decision.group
    for record in decision.records:
        group.apply(record)
    for act in decision.then:
        act()
    assert (group.epoch, group.assignment_epoch) == (7, 7) and group.metadata_hash != 0
    assert {one.member_id: one.assigned for one in group.members.values()} == {
        "a": partitions(t=[0, 1]),
        "b": partitions(t=[2, 3]),
    }
    assert group.targets == {one.member_id: one.assigned for one in group.members.values()}
    assert all(one.epoch == 7 and one.classic is not None for one in group.members.values())
    assert group.timers.due("a", Timer.SESSION) == 11_000
    assert decision.hash_with() == group.metadata_hash


def test_upgraded_group_gives_away_no_partition_that_a_cooperative_member_may_still_have() -> None:
    rebalancing = dataclasses.replace(
        VALUE, members=[member("a", [0], owned=[0, 1, 2]), member("b", [2, 3]), member("c", [])]
    )
    decision = conversion.upgrade(classic(rebalancing), topics(), ConsumerGroupLimits(), 1_000)
    group = decision.group
    for record in decision.records:
        group.apply(record)
    for act in decision.then:
        act()
    (t,) = group.members["a"].assigned
    assert group.members["a"].state is UNREVOKED
    assert group.members["a"].revoking == partitions(t=[1]), "b got 2, so a had revoked it"
    assert not group.is_free(t, 1)
    assert [group.members[one].state for one in "bc"] == [STABLE, STABLE]


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (VALUE, ConsumerGroupLimits(migration_policy="downgrade")),
        (VALUE, ConsumerGroupLimits(migration_policy="disabled")),
        (VALUE, ConsumerGroupLimits(size_max=1)),
        (dataclasses.replace(VALUE, protocol_type="connect"), ConsumerGroupLimits()),
        (dataclasses.replace(VALUE, members=[member("a", [0], b"own")]), ConsumerGroupLimits()),
        (
            dataclasses.replace(VALUE, members=[dataclasses.replace(member("a", [0]), subscription=b"?")]),
            ConsumerGroupLimits(),
        ),
    ],
    ids=[
        "downgrades only",
        "no migration",
        "too many",
        "not consumers",
        "an assignor of its own",
        "a malformed subscription",
    ],
)
def test_upgrade_of_incompatible_group_is_refused(value: GroupMetadataValue, limits: ConsumerGroupLimits) -> None:
    with pytest.raises(KafkaError) as refused:
        conversion.upgrade(classic(value), topics(), limits, 1_000)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_generations_in_the_user_data_do_not_prevent_an_upgrade() -> None:
    value = dataclasses.replace(VALUE, members=[member("a", [0], b'{"generations": {"t": 2}}')])
    assert conversion.upgrade(classic(value), topics(), ConsumerGroupLimits(), 1_000).records
    assert not conversion.is_generations(b'{"generations": {}, "more": 1}') and not conversion.is_generations(b"[]")


def test_group_with_classic_members_only_is_downgraded() -> None:
    drive = driver()
    a, b, c = Client(drive, "a", ["t"]), ClassicClient(drive, "b"), ClassicClient(drive, "c", protocols=("x", "range"))
    a.join()
    b.join()
    c.join()
    going = {"a"}
    assert conversion.may_downgrade(drive.group, going, ConsumerGroupLimits())
    assert not conversion.may_downgrade(drive.group, {"b"}, ConsumerGroupLimits())
    assert not conversion.may_downgrade(drive.group, {"a", "b", "c"}, ConsumerGroupLimits())
    for forbidding in ({"migration_policy": "upgrade"}, {"classic_size_max": 1}):
        assert not conversion.may_downgrade(drive.group, going, ConsumerGroupLimits(**forbidding))  # type: ignore[arg-type]
    value = conversion.downgrade(drive.group, going, drive.topics, 5)
    assert (value.generation, value.protocol, [one.member_id for one in value.members]) == (3, "range", ["b", "c"])
    assigned = [decode_assignment(one.assignment).assigned_partitions for one in value.members]
    assert sum(len(row.partitions) for rows in assigned for row in rows) > 0
    left = classic(value)
    assert left.subscribed_topics() == {"t"}
