"""Requests that somebody could mean: most of each is right, with names, ids and epochs that exist, and a little is not.

Random bytes are turned away by the decoder, and random values by the first check of a handler. What gets deep into
coordinators is a request that is right but for one field. So a request is made of what its fields are for: of the names
of a few groups, members and topics, of small numbers, and of what earlier answers said (member ids, epochs, producers).
Joins, sessions and transactions are made whole first, and then spoiled in up to two fields.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from anabranch.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from anabranch.protocol.apis.share_acknowledge import AcknowledgementBatch, ShareAcknowledgeRequest
from anabranch.protocol.apis.share_fetch import FetchPartition as SharePartition
from anabranch.protocol.apis.share_fetch import FetchTopic as ShareTopic
from anabranch.protocol.apis.share_fetch import ShareFetchRequest
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.wire import ZERO_UUID, Kind, WireField, fields_of

GROUPS: Final = ("classic", "consumer", "share", "streams")
MEMBERS: Final = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw")
TRANSACTIONS: Final = ("payments", "orders")
SUBSCRIPTION: Final = b"\0\3\0\0\0\1\0\2t0\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff"
RANGES: Final = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "assignor": ("uniform", "range", "simple", "bogus"),
    "protocol_type": ("consumer", "share", "streams"),
    "protocol_name": ("range", "roundrobin"),
    "regex": ("t.*", "(", "(a+)+$", ""),
    "transactional": TRANSACTIONS,
    "subtopology": ("0", "1", "none"),
    "instance": ("i1", "i2"),
    "group": (*GROUPS, "none"),
}
"""What stands in a field whose name holds this word."""
REMEMBERED: Final = 6


class Plausible:
    """Makes requests, and uses values of earlier responses in later ones."""

    def __init__(self, rng: random.Random, topics: Mapping[str, bytes]) -> None:
        self._rng = rng
        self._topics = dict(topics)
        self._members: deque[str] = deque(MEMBERS, maxlen=REMEMBERED)
        self._epochs: deque[int] = deque((0,), maxlen=REMEMBERED)
        self._producers: deque[tuple[int, int]] = deque(((-1, -1),), maxlen=REMEMBERED)
        self._sessions: deque[int] = deque((0,), maxlen=REMEMBERED)

    def request(self, kind: type[Any]) -> Any:
        """A request of this class."""
        right = WHOLE.get(kind)
        if right is None or self._rng.random() < 0.3:
            return self._any(kind)
        message = right(self)
        for _ in range(self._rng.choice((0, 0, 1, 1, 2))):
            owner, field = self._rng.choice(list(_places(message)))
            setattr(owner, field.name, self._value(field))
        return message

    def learn(self, answer: Any) -> None:
        """Remember who was let in, and as whom."""
        for owner, field in _places(answer):
            value = getattr(owner, field.name)
            if field.name == "member_id" and value:
                self._members.append(value)
            elif field.name in ("member_epoch", "generation_id"):
                self._epochs.append(value)
            elif field.name == "producer_epoch" and value >= 0:
                self._producers.append((owner.producer_id, value))
            elif field.name == "session_id":
                self._sessions.append(value)

    def member(self) -> str:
        """The id of one."""
        return self._rng.choice((*MEMBERS, *self._members, ""))

    def epoch(self) -> int:
        """One that a member may be in."""
        return self._rng.choice((0, 0, -1, *self._epochs))

    def producer(self) -> tuple[int, int]:
        """Id and epoch of one."""
        return self._rng.choice(self._producers)

    def session(self) -> int:
        """The id of one that fetches."""
        return self._rng.choice(self._sessions)

    def topic(self) -> tuple[str, bytes]:
        """Name and id of one that exists."""
        return self._rng.choice(list(self._topics.items()))

    def small(self, end: int) -> int:
        """A number from 0 to `end`."""
        return self._rng.randint(0, end)

    def _any(self, kind: type[Any]) -> Any:
        return kind(**{field.name: self._value(field) for field in fields_of(kind)})

    def _value(self, field: WireField) -> Any:
        if field.nullable and self._rng.random() < 0.3:
            return None
        if field.is_array:
            return [self._one(field) for _ in range(self._rng.choice((0, 1, 1, 2, 3)))]
        return self._one(field)

    def _one(self, field: WireField) -> Any:
        if field.struct is not None:
            return self._any(field.struct)
        if field.kind in RANGES:
            return self._number(field)
        match field.kind:
            case Kind.BOOLEAN:
                return self._rng.random() < 0.5
            case Kind.FLOAT64:
                return self._rng.choice((0.0, 1.0, -1.0, 1e300))
            case Kind.UUID:
                return self._rng.choice((*self._topics.values(), ZERO_UUID, b"\1" * 16))
            case Kind.RECORDS:
                return self._rng.choice((self.batch(), self.batch(), b"junk", b""))
            case Kind.BYTES:
                return self._rng.choice((SUBSCRIPTION, b"", self._rng.randbytes(20)))
            case _:
                return self._text(field.name)

    def _text(self, name: str) -> str:
        if "member_id" in name or name == "leader":
            return self.member()
        if "topic" in name or name == "name":
            return self._rng.choice((*self._topics, "__consumer_offsets", "__share_group_state", "none"))
        for word, texts in TEXTS.items():
            if word in name:
                return self._rng.choice(texts)
        return self._rng.choice(("", "x", "t0", "-1", "é" * 100))

    def _number(self, field: WireField) -> int:
        low, high = RANGES[field.kind]
        if "max_wait" in field.name or "timeout" in field.name:
            return min(high, self._rng.choice((0, 5, 1000)))
        chance = self._rng.random()
        if chance < 0.8:
            value = self._rng.choice((0, 0, 1, 1, 2, 3, 5, 10))
        elif chance < 0.9:
            value = self._rng.choice((-1, -2))
        else:
            value = self._rng.choice((low, high, self._rng.randint(low, high)))
        return max(low, min(high, value))

    def batch(self) -> bytes:
        """One that can be stored, perhaps of a producer that is known, perhaps in a transaction."""
        builder = BatchBuilder()
        for _ in range(1 + self.small(3)):
            builder.append(b"key-%d" % self.small(9), b"value", (), 1_700_000_000_000)
        producer_id, epoch = self.producer()
        if producer_id < 0:
            return bytes(builder.build())
        return bytes(builder.build(producer_id, epoch, self.small(3), transactional=self.small(1) == 1))


def _places(message: Any) -> Iterator[tuple[Any, WireField]]:
    for field in fields_of(type(message)):
        yield message, field
        value = getattr(message, field.name)
        if field.struct is not None and value is not None:
            for part in value if isinstance(value, list) else [value]:
                yield from _places(part)


def _consumer(of: Plausible) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="consumer",
        member_id=of.member(),
        member_epoch=of.epoch(),
        rebalance_timeout_ms=5000,
        subscribed_topic_names=["t0", "t1"],
        topic_partitions=[],
    )


def _share(of: Plausible) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="share", member_id=of.member(), member_epoch=of.epoch(), subscribed_topic_names=["t0", "t1"]
    )


def _streams(of: Plausible) -> StreamsGroupHeartbeatRequest:
    epoch = of.epoch()
    store = TopicInfo(name="streams-store-changelog", partitions=0, replication_factor=1, topic_configs=[])
    part = Subtopology(
        subtopology_id="0",
        source_topics=["t0"],
        source_topic_regex=[],
        state_changelog_topics=[store],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    tasks = [] if epoch == 0 else [TaskIds(subtopology_id="0", partitions=[of.small(2)])]
    return StreamsGroupHeartbeatRequest(
        group_id="streams",
        member_id=of.member(),
        member_epoch=epoch,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=5000,
        topology=Topology(epoch=0, subtopologies=[part]) if epoch == 0 else None,
        active_tasks=tasks,
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p1",
    )


def _acknowledged(of: Plausible) -> list[AcknowledgementBatch]:
    first = of.small(5)
    return [AcknowledgementBatch(first_offset=first, last_offset=first + of.small(3), acknowledge_types=[of.small(4)])]


def _share_fetch(of: Plausible) -> ShareFetchRequest:
    epoch = of.small(3)
    partition = SharePartition(partition_index=of.small(2), acknowledgement_batches=_acknowledged(of) if epoch else [])
    return ShareFetchRequest(
        group_id="share",
        member_id=of.member(),
        share_session_epoch=epoch,
        max_wait_ms=5,
        min_bytes=0,
        topics=[ShareTopic(topic_id=of.topic()[1], partitions=[partition])],
        forgotten_topics_data=[],
    )


def _share_acknowledge(of: Plausible) -> ShareAcknowledgeRequest:
    fetch = _share_fetch(of)
    return ShareAcknowledgeRequest(
        group_id="share",
        member_id=fetch.member_id,
        share_session_epoch=1 + of.small(3),
        topics=fetch.topics,  # type: ignore[arg-type]  # both messages have the same layout here
    )


def _join(of: Plausible) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=6000,
        rebalance_timeout_ms=100,
        member_id=of.member(),
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def _sync(of: Plausible) -> SyncGroupRequest:
    member = of.member()
    dealt = [SyncGroupRequestAssignment(member_id=member, assignment=b"\0\0\0\0\0\0\xff\xff\xff\xff")]
    return SyncGroupRequest(group_id="classic", generation_id=of.epoch(), member_id=member, assignments=dealt)


def _producer(of: Plausible) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=TRANSACTIONS[of.small(1)], transaction_timeout_ms=60_000)


def _fetch(of: Plausible) -> FetchRequest:
    name, topic_id = of.topic()
    partition = FetchPartition(
        partition=of.small(2), fetch_offset=of.small(9), partition_max_bytes=of.small(2000), current_leader_epoch=-1
    )
    return FetchRequest(
        max_wait_ms=of.small(50),
        min_bytes=of.small(2000),
        isolation_level=of.small(1),
        session_id=of.session(),
        session_epoch=of.small(2),
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])],
    )


def _produce(of: Plausible) -> ProduceRequest:
    name, topic_id = of.topic()
    data = PartitionProduceData(index=of.small(2), records=of.batch())
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        transactional_id=(None, *TRANSACTIONS)[of.small(2)],
        topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])],
    )


def _commit(of: Plausible) -> OffsetCommitRequest:
    name, topic_id = of.topic()
    row = OffsetCommitRequestPartition(partition_index=of.small(2), committed_offset=of.small(9), committed_metadata="")
    return OffsetCommitRequest(
        group_id=GROUPS[of.small(2)],
        generation_id_or_member_epoch=of.epoch(),
        member_id=of.member(),
        topics=[OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[row])],
    )


def _add(of: Plausible) -> AddPartitionsToTxnRequest:
    producer_id, epoch = of.producer()
    name, topics = TRANSACTIONS[of.small(1)], [AddPartitionsToTxnTopic(name=of.topic()[0], partitions=[of.small(2)])]
    added = AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, topics=topics
    )
    return AddPartitionsToTxnRequest(
        transactions=[added],
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )


def _commit_in_transaction(of: Plausible) -> TxnOffsetCommitRequest:
    producer_id, epoch = of.producer()
    row = TxnOffsetCommitRequestPartition(
        partition_index=of.small(2), committed_offset=of.small(9), committed_metadata=""
    )
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTIONS[of.small(1)],
        group_id=GROUPS[of.small(1)],
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t0", partitions=[row])],
    )


def _end(of: Plausible) -> EndTxnRequest:
    producer_id, epoch = of.producer()
    name = TRANSACTIONS[of.small(1)]
    return EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=of.small(1) == 1
    )


WHOLE: Final[Mapping[type[Any], Callable[[Plausible], Any]]] = {
    ConsumerGroupHeartbeatRequest: _consumer,
    ShareGroupHeartbeatRequest: _share,
    StreamsGroupHeartbeatRequest: _streams,
    ShareFetchRequest: _share_fetch,
    ShareAcknowledgeRequest: _share_acknowledge,
    FetchRequest: _fetch,
    ProduceRequest: _produce,
    OffsetCommitRequest: _commit,
    AddPartitionsToTxnRequest: _add,
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    InitProducerIdRequest: _producer,
    TxnOffsetCommitRequest: _commit_in_transaction,
    EndTxnRequest: _end,
}
