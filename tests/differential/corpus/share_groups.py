"""Share groups (KIP-932) as in Kafka 4.2: members, sessions, acknowledgements, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anabranch.protocol.apis import share_acknowledge as acks
from anabranch.protocol.apis import share_fetch as fetches
from anabranch.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from anabranch.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.wire import ZERO_UUID
from tests.differential.case import Run, batch, case
from tests.differential.corpus.consumer_groups import beat as consumer_beat
from tests.differential.corpus.consumer_groups import made, topic_id
from tests.differential.corpus.members import Member, coordinated

GROUP = 32
SHARE = 2
"""The type of a coordinator's key."""
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Said = tuple[int, int, Sequence[int]]
"""First and last offset, and what became of them."""


def beat(group: str, member: str = "a", epoch: int = 0, *topics: str, **more: Any) -> ShareGroupHeartbeatRequest:
    """A heartbeat; with topics it subscribes."""
    names = list(topics) or None
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, **more
    )


def describe(*groups: str) -> ShareGroupDescribeRequest:
    """Describe all groups."""
    return ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)


def fetch(
    group: str | None, member: str | None, epoch: int, topic: bytes = b"", said: Iterable[Said] = (), **more: Any
) -> fetches.ShareFetchRequest:
    """A fetch of partition 0."""
    rows = [
        fetches.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in said
    ]
    partition = fetches.FetchPartition(partition_index=more.pop("partition", 0), acknowledgement_batches=rows)
    topics = [fetches.FetchTopic(topic_id=topic, partitions=[partition])] if topic else []
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
    return fetches.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=more.pop("forgotten", []),
        **(limits | more),
    )


def acknowledge(
    group: str | None, member: str | None, epoch: int, topic: bytes, *said: Said, partition: int = 0
) -> acks.ShareAcknowledgeRequest:
    """What became of records of a partition."""
    rows = [
        acks.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in said
    ]
    partitions = [acks.AcknowledgePartition(partition_index=partition, acknowledgement_batches=rows)]
    return acks.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=[acks.AcknowledgeTopic(topic_id=topic, partitions=partitions)],
    )


async def earliest(run: Run, group: str) -> None:
    """Let a group begin at the beginning."""
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    await run.prepare(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))


async def shared(run: Run, *values: bytes, member: str = "a") -> tuple[str, str, bytes, int]:
    """A group, one member and a topic with records, up to the assignment: group, topic, its id, the member's epoch."""
    await earliest(run, run.name("g"))  # first, because brokers hear of it some time after the answer
    group = await made(run, (topic := run.name(), 1))
    key = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    await run.settled(key, lambda answer: answer.coordinators[0].error_code == 0)
    for value in values:
        await run.append(topic, batch(value))
    asked = beat(group, member, 0, topic)

    def assigned(answer: Any) -> bool:
        if answer.error_code == 0:
            asked.member_epoch = answer.member_epoch
        return bool(answer.assignment and answer.assignment.topic_partitions)

    told = await run.settled(asked, assigned)
    return group, topic, await topic_id(run, topic), told.member_epoch


def acquired(count: int) -> Callable[[Any], bool]:
    """Whether a fetch has handed out so many records."""

    def here(answer: Any) -> bool:
        rows = [one for topic in answer.responses for row in topic.partitions for one in row.acquired_records]
        return sum(one.last_offset - one.first_offset + 1 for one in rows) >= count

    return here


async def handed(run: Run, group: str, topic: bytes, count: int, member: str = "a", **more: Any) -> int:
    """Open a session and fetch until so many records were handed out; the session's next epoch."""
    request = fetch(group, member, 0, topic, **more)
    epoch = 0

    def here(answer: Any) -> bool:
        nonlocal epoch
        if answer.error_code == 0:
            epoch += 1
            request.share_session_epoch = epoch
            request.topics = []
        return acquired(count)(answer)

    await run.settled(request, here)
    return epoch


@case("ShareGroupHeartbeat", kafka="4.2")
async def not_valid(run: Run) -> None:
    await run.create(topic := run.name())
    await coordinated(run, group := run.name("g"))
    await run.ask(beat("", "a", 0, topic))
    await run.ask(beat(group, "", 0, topic))
    await run.ask(beat(group, "a", 0, topic, rack_id=""))
    await run.ask(beat(group, "a", 0))
    await run.ask(beat(group, "a", -2))
    await run.ask(beat(group, "a", 1))
    await run.ask(beat(group, "a", -1))
    await run.ask(describe(group))


@case("ShareGroupHeartbeat", kafka="4.2")
async def one_member(run: Run) -> None:
    group, topic, _, epoch = await shared(run)
    await run.ask(describe(group))
    await run.ask(beat(group, "a", epoch))
    await run.ask(beat(group, "a", epoch, topic))
    await run.ask(beat(group, "a", epoch - 1))
    await run.ask(beat(group, "a", epoch + 1))
    await run.ask(beat(group, "a", 0, topic))
    await run.ask(beat(group, "b", epoch))
    await run.ask(beat(group, "a", epoch, run.name("none")))
    await run.ask(describe(group))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await run.ask(beat(group, "a", -1))
    await run.ask(beat(group, "a", -1))
    await run.ask(describe(group))
    await run.ask(DeleteGroupsRequest(groups_names=[group]))
    await run.ask(describe(group))


@case("ShareGroupHeartbeat", kafka="4.2")
async def two_members(run: Run) -> None:
    group, topic, _, _ = await shared(run)
    b = await run.ask(beat(group, "b", 0, topic))
    await run.ask(beat(group, "b", b.member_epoch))
    await run.ask(describe(group))
    await run.ask(beat(group, "b", -1))
    await run.ask(describe(group))


@case("ShareGroupDescribe", kafka="4.2")
async def other_kinds(run: Run) -> None:
    group, topic, _, _ = await shared(run)
    await coordinated(run, classic := run.name("classic"))
    await Member.joined(run, classic, topics=[topic])
    await run.ask(describe(group, classic, run.name("none")))
    await run.ask(describe(group, group))
    await run.ask(describe(""))
    await run.ask(DescribeGroupsRequest(groups=[group]))
    await run.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False))
    await run.ask(consumer_beat(group, "c", 0, topic))
    await run.ask(beat(classic, "c", 0, topic))
    for kinds in (["share"], ["Share"]):
        answer = await run.prepare(ListGroupsRequest(types_filter=kinds), version=5)
        answer.groups = [one for one in answer.groups if one.group_id == group]
        run.record(ListGroupsRequest(types_filter=kinds), 5, answer)


@case("ShareFetch", kafka="4.2")
async def refused(run: Run) -> None:
    group, _, topic, _ = await shared(run, b"one")
    other = run.name("other")
    await run.ask(fetch(None, "a", 0, topic))
    await run.ask(fetch("", "a", 0, topic))
    await run.ask(fetch(group, None, 0, topic))
    await run.ask(fetch(group, "", 0, topic))
    await run.ask(fetch(group, "a", 1, topic))
    await run.ask(fetch(group, "a", -1, topic))
    await run.ask(fetch(group, "a", 0, topic, [(0, 0, [ACCEPT])]))
    await run.ask(fetch(group, "b", 0, b"\x07" * 16))
    await run.ask(fetch(group, "c", 0, ZERO_UUID))
    await run.ask(fetch(group, "d", 0, topic, partition=9))
    await run.ask(fetch(other, "e", 0))


@case("ShareFetch", kafka="4.2")
async def sessions(run: Run) -> None:
    group, _, topic, _ = await shared(run, b"one", b"two", b"three")
    epoch = await handed(run, group, topic, 3)
    await run.ask(fetch(group, "a", epoch))
    await run.ask(fetch(group, "a", epoch))
    await run.ask(fetch(group, "a", epoch + 5))
    await run.ask(fetch(group, "a", epoch + 1, topic, [(0, 0, [ACCEPT])]))
    await run.ask(fetch(group, "a", epoch + 2, topic, [(1, 1, [RELEASE])]))
    await run.until(fetch(group, "b", 0, topic), acquired(1))
    forgotten = [fetches.ForgottenTopic(topic_id=topic, partitions=[0])]
    await run.ask(fetch(group, "b", 1, forgotten=forgotten))
    await run.ask(fetch(group, "b", -1))
    await run.ask(fetch(group, "b", -1))


@case("ShareFetch", kafka="4.2")
async def limits(run: Run) -> None:
    group, _, topic, _ = await shared(run, b"one", b"two", b"three", b"four")
    await handed(run, group, topic, 1, max_records=1)
    await run.until(fetch(group, "b", 0, topic, max_records=2, batch_size=1), acquired(1))
    for more in ({"max_records": 0}, {"max_bytes": 0}, {"batch_size": 0}, {"max_wait_ms": -1}, {"min_bytes": -1}):
        await run.ask(fetch(group, "c", 0, topic, **more))


@case("ShareFetch", "2", kafka="4.2")
async def renewed(run: Run) -> None:
    group, _, topic, _ = await shared(run, b"one")
    epoch = await handed(run, group, topic, 1)
    await run.ask(fetch(group, "a", epoch, topic, [(0, 0, [RENEW])]))
    quiet = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    await run.ask(fetch(group, "a", epoch + 1, topic, [(0, 0, [RENEW])], **quiet))
    await run.ask(fetch(group, "a", epoch + 2, topic, [(0, 0, [RENEW])], is_renew_ack=True))
    await run.ask(fetch(group, "a", epoch + 3, topic, [(0, 0, [RENEW])], is_renew_ack=True, max_bytes=0))


@case("ShareAcknowledge", kafka="4.2")
async def wrong(run: Run) -> None:
    group, _, topic, _ = await shared(run, b"one", b"two", b"three")
    await run.ask(acknowledge(group, "a", 1, topic, (0, 0, [ACCEPT])))
    epoch = await handed(run, group, topic, 3)
    stories: list[list[Said]] = [
        [(5, 6, [ACCEPT])],
        [(1, 0, [ACCEPT])],
        [(0, 0, [9])],
        [(0, 0, [-1])],
        [(0, 0, [])],
        [(0, 2, [ACCEPT, RELEASE])],
        [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
        [(-1, 0, [ACCEPT])],
    ]
    for number, said in enumerate(stories):
        answer = await run.ask(acknowledge(group, "a", epoch + number, topic, *said))
        if answer is None or answer.error_code:
            break
    await run.ask(acknowledge(group, "a", 0, topic, (0, 0, [ACCEPT])))
    await run.ask(acknowledge(None, "a", 1, topic, (0, 0, [ACCEPT])))
    await run.ask(acknowledge(group, None, 1, topic, (0, 0, [ACCEPT])))
    await run.ask(acknowledge(group, "b", 1, topic, (0, 0, [ACCEPT])))


@case("ShareAcknowledge", kafka="4.2")
async def what_became_of_records(run: Run) -> None:
    group, name, topic, _ = await shared(run, b"one", b"two", b"three", b"four")
    epoch = await handed(run, group, topic, 4)
    await run.ask(acknowledge(group, "a", epoch, topic, (0, 0, [ACCEPT])))
    await run.ask(acknowledge(group, "a", epoch + 1, topic, (0, 0, [ACCEPT])))
    await run.ask(acknowledge(group, "a", epoch + 2, topic, (1, 1, [RELEASE]), (2, 2, [REJECT])))
    await run.until(fetch(group, "b", 0, topic), acquired(1))
    await run.ask(acknowledge(group, "b", 1, topic, (3, 3, [ACCEPT])))
    await run.ask(acknowledge(group, "a", epoch + 3, topic, (3, 3, [ACCEPT]), partition=7))
    await run.ask(acknowledge(group, "a", -1, topic, (3, 3, [ACCEPT])))
    await run.ask(acknowledge(group, "a", epoch + 4, topic, (3, 3, [ACCEPT])))
    await run.ask(acknowledge(group, "b", 2, topic, (1, 1, [0])))
    await run.ask(where(group, name))


def where(group: str, *topics: str, partitions: Sequence[int] = (0,)) -> DescribeShareGroupOffsetsRequest:
    """Where a group stands; in all of its topics if none is named."""
    rows = [DescribeShareGroupOffsetsRequestTopic(topic_name=one, partitions=list(partitions)) for one in topics]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=rows or None)
    return DescribeShareGroupOffsetsRequest(groups=[asked])


def moved(group: str, topic: str, offset: int, partition: int = 0) -> AlterShareGroupOffsetsRequest:
    """Let a group begin there."""
    row = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    return AlterShareGroupOffsetsRequest(
        group_id=group, topics=[AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[row])]
    )


def forgotten(group: str, *topics: str) -> DeleteShareGroupOffsetsRequest:
    """Forget where a group stands."""
    rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=one) for one in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=rows)


@case("DescribeShareGroupOffsets", kafka="4.2")
async def where_it_stands(run: Run) -> None:
    group, topic, shared_id, _ = await shared(run, b"one", b"two")
    await handed(run, group, shared_id, 2)
    await run.ask(where(group, topic))
    await run.ask(where(group))
    await run.ask(where(group, topic, partitions=(0, 9)))
    await run.ask(where(group, run.name("none")))
    await run.ask(where(run.name("nobody"), topic))
    await run.ask(where(run.name("nobody")))
    await run.ask(where("", topic))
    await run.ask(DescribeShareGroupOffsetsRequest(groups=[]))


@case("AlterShareGroupOffsets", kafka="4.2")
async def set_anew(run: Run) -> None:
    group, topic, shared_id, _ = await shared(run, b"one", b"two")
    epoch = await handed(run, group, shared_id, 2)
    await run.ask(moved(group, topic, 1))
    await run.prepare(acknowledge(group, "a", -1, shared_id, (0, 1, [RELEASE])))
    assert epoch
    await run.prepare(beat(group, "a", -1))
    await run.ask(moved(group, topic, 1))
    await run.ask(where(group, topic))
    await run.ask(moved(group, topic, 1, partition=9))
    await run.ask(moved(group, run.name("none"), 0))
    await run.ask(moved(run.name("nobody"), topic, 0))
    await run.ask(moved("", topic, 0))
    await run.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[]))


@case("DeleteShareGroupOffsets", kafka="4.2")
async def forgotten_again(run: Run) -> None:
    group, topic, shared_id, _ = await shared(run, b"one")
    await handed(run, group, shared_id, 1)
    await run.ask(forgotten(group, topic))
    await run.prepare(acknowledge(group, "a", -1, shared_id, (0, 0, [RELEASE])))
    await run.prepare(beat(group, "a", -1))
    await run.ask(forgotten(group, topic, run.name("none")))
    await run.ask(forgotten(group, topic))
    await run.ask(where(group, topic))
    await run.ask(forgotten(run.name("nobody"), topic))
    await run.ask(forgotten("", topic))
    await run.ask(forgotten(group))


@case("FindCoordinator", "6", kafka="4.2")
async def of_shared_partitions(run: Run) -> None:
    good = f"{run.name('g')}:AAAAAAAAAAAAAAAAAAAAAQ:0"
    await run.until(
        FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[good]),
        lambda answer: answer.coordinators[0].error_code == 0,
    )
    for key in ("", "nonsense", "g:x:0", f"{good}x", "g:AAAAAAAAAAAAAAAAAAAAAQ:", ":AAAAAAAAAAAAAAAAAAAAAQ:0"):
        await run.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]))
