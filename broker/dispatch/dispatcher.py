"""Finds the handler of each request, and turns its failures into responses.

The table below lists all APIs that this broker can serve. Its profile decides which part is served and advertised in
ApiVersions (`version_ranges`). All handlers are imported with the dispatcher, before the node is ready: an import in a
request would fail when the process has no file descriptors left.

A KafkaError of a handler becomes the top-level error code of an empty response, where the response has one; ZooKeeper
that does not answer becomes REQUEST_TIMED_OUT there. Anything else is a bug: it is logged with the request and answered
with UNKNOWN_SERVER_ERROR where possible, and the connection is closed. No failure affects another connection.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext
from anabranch.broker.dispatch.version_ranges import PeerVersions
from anabranch.broker.profiles.profile import profile_for
from anabranch.broker.quotas.response_memory import LONG_RESPONSES
from anabranch.broker.quotas.throttling import is_follower
from anabranch.controller.zk.session import ConnectionLoss, SessionExpired
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.values import value
from anabranch.protocol.wire import WireField, fields_of

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.dispatch.services import Services
    from anabranch.protocol.codec import DecodedRequest
    from anabranch.protocol.registry import Api

log: Final = logging.getLogger(__name__)
Handler = Callable[[RequestContext, Any], Awaitable[Any]]


@value
class HandlerRow:
    """One API that this broker serves."""

    name: str
    versions: str
    by_controllers: bool = False
    """Whether nodes without replicas serve it, too."""
    long_poll: bool = False
    """Whether it only waits and reads, so that it is cancelled when its connection is lost."""
    for_telemetry: bool = False
    """Whether it is served only with telemetry enabled."""

    def is_served(self, *, is_broker: bool, telemetry: bool) -> bool:
        """Return whether a node of this kind serves it."""
        return (is_broker or self.by_controllers) and (telemetry or not self.for_telemetry)

    @property
    def api(self) -> Api:
        """Return the API's row in the registry."""
        return BY_NAME[self.name]

    @property
    def module(self) -> str:
        """Return the module of its handler; the function has the name of the module's last part."""
        return "anabranch.broker.handlers." + self.api.module.rpartition(".")[2]

    def load(self) -> Handler:
        """Import the handler."""
        function: Handler = getattr(importlib.import_module(self.module), self.module.rpartition(".")[2])
        return function


HANDLERS: Final[tuple[HandlerRow, ...]] = (
    HandlerRow("Produce", "0-13"),
    HandlerRow("Fetch", "0-18", long_poll=True),
    HandlerRow("ListOffsets", "0-11"),
    HandlerRow("Metadata", "0-13", by_controllers=True),
    HandlerRow("LeaderAndIsr", "0-7"),
    HandlerRow("StopReplica", "0-4"),
    HandlerRow("UpdateMetadata", "0-8", by_controllers=True),
    HandlerRow("ControlledShutdown", "0-3", by_controllers=True),
    HandlerRow("OffsetCommit", "0-10"),
    HandlerRow("OffsetFetch", "0-10"),
    HandlerRow("FindCoordinator", "0-6"),
    HandlerRow("JoinGroup", "0-9"),
    HandlerRow("Heartbeat", "0-4"),
    HandlerRow("LeaveGroup", "0-5"),
    HandlerRow("SyncGroup", "0-5"),
    HandlerRow("DescribeGroups", "0-6"),
    HandlerRow("ListGroups", "0-5"),
    HandlerRow("SaslHandshake", "0-1", by_controllers=True),
    HandlerRow("ApiVersions", "0-4", by_controllers=True),
    HandlerRow("CreateTopics", "0-7", by_controllers=True),
    HandlerRow("DeleteTopics", "0-6", by_controllers=True),
    HandlerRow("DeleteRecords", "0-2"),
    HandlerRow("InitProducerId", "0-5"),
    HandlerRow("OffsetForLeaderEpoch", "0-4"),
    HandlerRow("AddPartitionsToTxn", "0-5"),
    HandlerRow("AddOffsetsToTxn", "0-4"),
    HandlerRow("EndTxn", "0-5"),
    HandlerRow("WriteTxnMarkers", "0-2"),
    HandlerRow("TxnOffsetCommit", "0-5"),
    HandlerRow("DescribeAcls", "0-3", by_controllers=True),
    HandlerRow("CreateAcls", "0-3", by_controllers=True),
    HandlerRow("DeleteAcls", "0-3", by_controllers=True),
    HandlerRow("DescribeConfigs", "0-4", by_controllers=True),
    HandlerRow("AlterConfigs", "0-2", by_controllers=True),
    HandlerRow("AlterReplicaLogDirs", "0-2"),
    HandlerRow("DescribeLogDirs", "0-4"),
    HandlerRow("SaslAuthenticate", "0-2", by_controllers=True),
    HandlerRow("CreatePartitions", "0-3", by_controllers=True),
    HandlerRow("CreateDelegationToken", "0-3", by_controllers=True),
    HandlerRow("RenewDelegationToken", "0-2", by_controllers=True),
    HandlerRow("ExpireDelegationToken", "0-2", by_controllers=True),
    HandlerRow("DescribeDelegationToken", "0-3", by_controllers=True),
    HandlerRow("DeleteGroups", "0-2"),
    HandlerRow("ElectLeaders", "0-2", by_controllers=True),
    HandlerRow("IncrementalAlterConfigs", "0-1", by_controllers=True),
    HandlerRow("AlterPartitionReassignments", "0-1", by_controllers=True),
    HandlerRow("ListPartitionReassignments", "0", by_controllers=True),
    HandlerRow("OffsetDelete", "0"),
    HandlerRow("DescribeClientQuotas", "0-1", by_controllers=True),
    HandlerRow("AlterClientQuotas", "0-1", by_controllers=True),
    HandlerRow("DescribeUserScramCredentials", "0", by_controllers=True),
    HandlerRow("AlterUserScramCredentials", "0", by_controllers=True),
    HandlerRow("DescribeQuorum", "0-2"),
    HandlerRow("AlterPartition", "0-3", by_controllers=True),
    HandlerRow("UpdateFeatures", "0-2", by_controllers=True),
    HandlerRow("Envelope", "0", by_controllers=True),
    HandlerRow("DescribeCluster", "0-2", by_controllers=True),
    HandlerRow("DescribeProducers", "0"),
    HandlerRow("UnregisterBroker", "0"),
    HandlerRow("DescribeTransactions", "0"),
    HandlerRow("ListTransactions", "0-2"),
    HandlerRow("AllocateProducerIds", "0", by_controllers=True),
    HandlerRow("ConsumerGroupHeartbeat", "0-1"),
    HandlerRow("ConsumerGroupDescribe", "0-1"),
    HandlerRow("GetTelemetrySubscriptions", "0", for_telemetry=True),
    HandlerRow("PushTelemetry", "0", for_telemetry=True),
    HandlerRow("ListConfigResources", "0-1"),
    HandlerRow("DescribeTopicPartitions", "0"),
    HandlerRow("ShareGroupHeartbeat", "1"),
    HandlerRow("ShareGroupDescribe", "1"),
    HandlerRow("ShareFetch", "1-2", long_poll=True),
    HandlerRow("ShareAcknowledge", "1-2"),
    HandlerRow("AddRaftVoter", "0-1"),
    HandlerRow("RemoveRaftVoter", "0"),
    HandlerRow("InitializeShareGroupState", "0"),
    HandlerRow("ReadShareGroupState", "0"),
    HandlerRow("WriteShareGroupState", "0-1"),
    HandlerRow("DeleteShareGroupState", "0"),
    HandlerRow("ReadShareGroupStateSummary", "0-1"),
    HandlerRow("StreamsGroupHeartbeat", "0"),
    HandlerRow("StreamsGroupDescribe", "0"),
    HandlerRow("DescribeShareGroupOffsets", "0-1"),
    HandlerRow("AlterShareGroupOffsets", "0"),
    HandlerRow("DeleteShareGroupOffsets", "0"),
    HandlerRow("ConsumerGroupPosition", "0-1", long_poll=True),
    HandlerRow("PartitionLeaderEpochsForPartitions", "0-1", by_controllers=True),
)


@functools.cache
def peer_versions(kafka_version: str, is_broker: bool, telemetry: bool = False) -> PeerVersions:
    """Return the versions that a node of this profile serves, per kind of peer."""
    served = [row for row in HANDLERS if row.is_served(is_broker=is_broker, telemetry=telemetry)]
    return PeerVersions(profile_for(kafka_version), {row.name: row.versions for row in served})


class Dispatcher:
    """The dispatcher of a node: finds handlers and turns their outcomes into responses."""

    inner: Dispatcher
    """The wrapped dispatcher, if this is a wrapper."""
    outermost = False
    """Whether later wrappers have to be placed inside this one."""

    def __init__(self, services: Services, rows: tuple[HandlerRow, ...] = HANDLERS) -> None:
        is_broker, telemetry = services.settings.is_broker, services.takes_telemetry
        mine = [row for row in rows if row.is_served(is_broker=is_broker, telemetry=telemetry)]
        self._services = services
        self._handlers: dict[int, Handler] = {row.api.key: row.load() for row in mine}
        self.audiences = PeerVersions(services.profile, {row.name: row.versions for row in mine})
        """The version ranges per kind of peer."""
        self.requests: dict[int, int] = dict.fromkeys(self._handlers, 0)
        """API key -> number of requests started."""
        self.throttling = services.throttling
        self.response_memory = services.response_memory
        self.long_polls: frozenset[int] = frozenset(row.api.key for row in mine if row.long_poll)

    async def answer(self, request: DecodedRequest, peer: Peer) -> Any:
        """Return the response to a request; None if it gets none. Raises CloseConnection."""
        if request.body is None:
            return None  # ApiVersions in an unknown version: the connection answers it (KIP-511)
        key = request.api.key
        self.requests[key] += 1
        if key in LONG_RESPONSES and self.response_memory.full:
            await self.response_memory.wait_for_room(follower=is_follower(request))
        context = RequestContext(self._services, request.version, request.client_id or "", peer)
        try:
            return await self._handlers[key](context, request.body)
        except KafkaError as error:
            return error_response(request, error.code, str(error))
        except (ConnectionLoss, SessionExpired) as error:
            return error_response(request, ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper has not answered ({error})")
        except CloseConnection:
            raise
        except Exception:
            log.exception("bug in the handler of %s v%d from %s: %r", request.api.name, request.version, peer, request)
            raise HandlerFailed(error_response_or_none(request, ErrorCode.UNKNOWN_SERVER_ERROR)) from None


class HandlerFailed(CloseConnection):
    """Raised when a handler raised an unexpected exception. `response` may be sent before the connection is closed."""

    def __init__(self, response: Any) -> None:
        super().__init__("a bug in the handler", response)


def error_response(request: DecodedRequest, code: ErrorCode, reason: str) -> Any:
    """Return an empty response with a top-level error code; raise CloseConnection if the API has no such field."""
    response = error_response_or_none(request, code)
    if response is None:
        raise CloseConnection(f"{request.api.name} refused: {reason}")
    return response


def error_response_or_none(request: DecodedRequest, code: ErrorCode) -> Any:
    """Return an empty response with a top-level error code, or None if this version has no such field."""
    fields = fields_of(request.api.response)
    if not any(field.name == "error_code" and field.exists(request.version) for field in fields):
        return None
    return request.api.response(
        **{field.name: code if field.name == "error_code" else empty_value(field) for field in fields}
    )


def empty_value(field: WireField) -> Any:
    """Return an empty value of a field that is legal in every version."""
    if field.default is not MISSING and field.absent_value() is not None:
        return field.absent_value()
    if field.nullable and field.nullable_since == 0:
        return None
    if field.is_array:
        return []
    if field.kind is None:
        assert field.struct is not None
        return field.struct(**{inner.name: empty_value(inner) for inner in fields_of(field.struct)})
    return _EMPTY.get(field.kind.name, 0)


_EMPTY: Final = {"TEXT": "", "BYTES": b"", "RECORDS": b"", "UUID": bytes(16), "BOOLEAN": False}
