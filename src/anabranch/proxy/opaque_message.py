"""Requests and responses that this package cannot decode: newer APIs and versions, and private ones. Pure.

They pass through rules and the journal as messages without fields that keep their bytes.
"""

from __future__ import annotations

from typing import Any, Final

from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import decode_request, decode_response
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import APIS, BY_KEY, Api
from anabranch.protocol.wire import message
from anabranch.proxy.request_header import RequestHeader

READABLE: Final = {api.key: (0, api.last_version) for api in APIS}
NAMES: Final = dict(
    (
        *((55, "DescribeQuorum"), (64, "UnregisterBroker"), (71, "GetTelemetrySubscriptions"), (72, "PushTelemetry")),
        *((74, "ListConfigResources"), (75, "DescribeTopicPartitions"), (76, "ShareGroupHeartbeat")),
        *((77, "ShareGroupDescribe"), (78, "ShareFetch"), (79, "ShareAcknowledge"), (80, "AddRaftVoter")),
        (81, "RemoveRaftVoter"),
        *((90, "DescribeShareGroupOffsets"), (91, "AlterShareGroupOffsets"), (92, "DeleteShareGroupOffsets")),
    )
)
"""Kafka's names of APIs that have no messages here."""


@message
class Opaque:
    """A message of raw bytes."""


class OpaqueMessage(Opaque):
    """The raw bytes, which are not a wire field."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        self.frame = frame


class OpaqueApi(Api):
    """An API or version whose messages are unknown."""

    @property
    def request(self) -> type[Any]:
        """A message class without fields."""
        return OpaqueMessage

    @property
    def response(self) -> type[Any]:
        """A message class without fields."""
        return OpaqueMessage


def read_request(head: RequestHeader, frame: bytes) -> DecodedRequest:
    """Decode a request as far as possible."""
    if head.key in READABLE and 0 <= head.version <= READABLE[head.key][1]:
        try:
            return decode_request(frame, READABLE, len(frame))
        except DecodeError:
            pass  # the upstream will answer with its error
    known = BY_KEY.get(head.key)
    name = known.name if known is not None else NAMES.get(head.key, f"API {head.key}")
    api = OpaqueApi(head.key, name, head.version, None)
    return DecodedRequest(api, head.version, head.correlation_id, head.client_id, OpaqueMessage(frame))


def read_answer(request: DecodedRequest, frame: bytes) -> Any:
    """Decode the response, if its request was decoded. Raises DecodeError."""
    if isinstance(request.api, OpaqueApi):
        return OpaqueMessage(frame)
    return decode_response(frame, request.api, request.version)
