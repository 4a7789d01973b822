"""Creates and deletes topics from any broker: by znodes, which the active controller watches.

A topic and its configuration are one write. (Kafka writes the configuration first: if two clients create a topic at
once, it may have the other's.) The topic's znode is created complete, with the first generation of its history (R1).
The write is unfenced: Kafka does not fence it either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from anabranch.controller import topic_size
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.model import TopicBody
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import (
    BadVersion,
    ConnectionLoss,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    Set,
    TooLarge,
    ZkSession,
)
from anabranch.controller.zk.sizes import multi_bytes
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.linear_hashing import base_of
from anabranch.protocol.wire import ZERO_UUID


async def create_topic(
    session: ZkSession,
    *,
    name: str,
    topic_id: bytes,
    assignment: Mapping[int, Sequence[int]],
    configs: Mapping[str, str],
) -> None:
    """Create a topic. Raises KafkaError(TOPIC_ALREADY_EXISTS) if there is one, or one that is being deleted."""
    with _in_a_session():
        if sorted(assignment) != list(range(len(assignment))) or not assignment:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without gaps.")
        await refuse_deleted(session, name)
        body = new_topic(topic_id, assignment)
        topic_size.check(name, body)
        if await retry_connection_loss(lambda: session.exists(paths.topic(name))) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        topic = Create(paths.topic(name), znodes.encode_topic(body))
        while True:
            ops = [await _config_write(session, name, configs), topic]
            try:
                await retry_connection_loss(lambda: session.multi(ops), size_bytes=multi_bytes(ops))  # noqa: B023
                return
            except NoNode:
                await _make_parents(session, name)
            except (NodeExists, BadVersion):
                # The reply to a successful write may have been lost; the id shows which topic exists.
                found = await _topic_id(session, name)
                if found == topic_id:
                    return
                if found is not None:
                    raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from None


async def refuse_deleted(session: ZkSession, name: str) -> None:
    """Raise KafkaError(TOPIC_ALREADY_EXISTS) if a topic of this name is being deleted."""
    if await is_going(session, name):
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{name}' is marked for deletion. It is removed when every broker has deleted its logs.",
        )


def new_topic(topic_id: bytes, assignment: Mapping[int, Sequence[int]]) -> TopicBody:
    """Return the znode of a topic that was never resized."""
    count = len(assignment)
    return TopicBody(
        topic_id=topic_id,
        assignment={index: tuple(replicas) for index, replicas in assignment.items()},
        initial_partition_count=count,
        undeleted_partition_count=count,
        base=base_of(count),
        generation=0,
        history=((0, count),),
    )


async def is_going(session: ZkSession, name: str) -> bool:
    """Whether a topic is being deleted."""
    with _in_a_session():
        return await retry_connection_loss(lambda: session.exists(paths.delete_topic(name))) is not None


async def delete_topic(session: ZkSession, name: str, topic_id: bytes = ZERO_UUID) -> None:
    """Request the deletion of a topic. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) if it does not exist.

    With an id, raises UNKNOWN_TOPIC_ID if the topic of this name has another one (KIP-516): this node's metadata may be
    older than a deletion and another creation. The session syncs, because its server may lag behind them, too.

    After a lost response the request may have been written, and the topic deleted. So it is repeated only if this
    topic exists without a request: it must not delete another one that was created since. Both are read at once, as a
    request that is written ends together with its topic.
    """
    with _in_a_session():
        await retry_connection_loss(session.sync)
        found = await retry_connection_loss(lambda: session.exists(paths.topic(name)))
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        if topic_id not in (ZERO_UUID, await _topic_id(session, name)):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        czxid = found.czxid
        both, written = (paths.topic(name), paths.delete_topic(name)), False
        while found is not None and found.czxid == czxid and not written:
            try:
                await session.create(paths.delete_topic(name), make_parents=True)
                return
            except NodeExists:
                return
            except ConnectionLoss:
                await retry_connection_loss(session.sync)
                topic, request = await retry_connection_loss(lambda: session.get_many(both))
                found, written = None if topic is None else topic[1], request is not None


@contextlib.contextmanager
def _in_a_session() -> Iterator[None]:
    """Turn ZooKeeper's errors in this block into Kafka errors for clients.

    A node without a session is no controller any more, whatever the outcome of its last write: NOT_CONTROLLER sends the
    client to another one.
    """
    try:
        yield
    except TooLarge as error:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{error}: too large for one ZooKeeper request.") from None
    except SessionExpired:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The ZooKeeper session is over.") from None


async def _config_write(session: ZkSession, name: str, configs: Mapping[str, str]) -> Create | Set:
    """Return the operation that writes a new topic's configuration, over one that another topic has left."""
    path, data = paths.topic_config(name), znodes.encode_config(configs)
    left = await retry_connection_loss(lambda: session.exists(path))
    return Create(path, data) if left is None else Set(path, data, left.version)


async def _make_parents(session: ZkSession, name: str) -> None:
    for path in (paths.parent(paths.topic(name)), paths.parent(paths.topic_config(name))):
        with contextlib.suppress(NodeExists):
            await retry_connection_loss(lambda path=path: session.create(path, make_parents=True))  # type: ignore[misc]


async def _topic_id(session: ZkSession, name: str) -> bytes | None:
    path = paths.topic(name)
    try:
        data, _ = await retry_connection_loss(lambda: session.get(path))
    except NoNode:
        return None
    return znodes.decode_topic(path, data).topic_id
