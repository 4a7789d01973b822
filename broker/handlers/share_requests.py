"""Shared parts of ShareFetch and ShareAcknowledge: sender checks, acknowledgements and share partitions.

Source: KIP-932; Kafka's `KafkaApis` (`handleShareFetchRequest`, `handleShareAcknowledgeRequest`,
`validateAcknowledgementBatches`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.coordinators.share_partitions.share_partition import Acknowledgement, AcknowledgeType
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.dispatch.request_context import RequestContext

MEMBER_ID_CHARACTERS_MAX: Final = 36
LAST_TYPE: Final = max(AcknowledgeType)


def check_sender(ctx: RequestContext, group: str | None, member: str | None) -> tuple[str, str]:
    """Return group and member. Raises UNSUPPORTED_VERSION, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST."""
    if not ctx.services.has_share_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    authorize(ctx, Operation.READ, ResourceType.GROUP, group or "")
    if not group:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if not member or len(member) > MEMBER_ID_CHARACTERS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"MemberId must have 1 to {MEMBER_ID_CHARACTERS_MAX} characters.")
    return group, member


def acknowledgements_of(batches: Iterable[Any], *, renews: bool) -> list[Acknowledgement]:
    """Return the acknowledgements of one partition. Raises INVALID_REQUEST."""
    acknowledgements: list[Acknowledgement] = []
    last = -1
    for one in batches:
        types = tuple(one.acknowledge_types)
        count = one.last_offset - one.first_offset + 1
        problem = ""
        if count < 1 or one.first_offset <= last:
            problem = "batches must be in order and must not overlap"
        elif len(types) not in (1, count):
            problem = f"{len(types)} types for {count} offsets"
        elif not all(0 <= type_ <= LAST_TYPE for type_ in types):
            problem = f"types must be 0 to {LAST_TYPE}"
        elif not renews and AcknowledgeType.RENEW in types:
            problem = "type 4 needs IsRenewAck"
        if problem:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.first_offset}-{one.last_offset}: {problem}.")
        last = one.last_offset
        acknowledgements.append(Acknowledgement(one.first_offset, last, types))
    return acknowledgements


def topic_of(ctx: RequestContext, topic_id: bytes) -> str:
    """Return the name of a topic that the client may read. Raises UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED."""
    topic = ctx.services.metadata.topic_name(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "unknown topic id")
    if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
    return topic


async def store(
    ctx: RequestContext, group: str, member: str, topic_id: bytes, index: int, acknowledgements: list[Acknowledgement]
) -> None:
    """Apply a member's acknowledgements, and store them.

    Raises UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, and the
    errors of the share coordinator.
    """
    partitions = ctx.services.shares.partitions
    one = await partitions.find(ShareKey(group, topic_id, index), topic_of(ctx, topic_id))
    await partitions.acknowledge(one, member, acknowledgements)
