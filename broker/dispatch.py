"""Finds the handler of each request, and turns its failures into answers.

The list below is all that this broker can serve; what it does serve, and tells in ApiVersions, is that part of it which
its persona shows (`audiences`). A handler module is imported when its first request comes, so a node that never commits
an offset never pays for the code that does.

Failures have fates: a KafkaError that leaves a handler becomes the top-level error code of an empty answer, where
the response has one, and a ZooKeeper that does not answer becomes REQUEST_TIMED_OUT there; anything else is a bug: it
is logged with the request, answered with UNKNOWN_SERVER_ERROR where possible, and the connection is closed. None of
these can reach another connection.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.api import CloseConnection, RequestContext
from anabranch.broker.audiences import Audiences
from anabranch.broker.personas.persona import persona
from anabranch.broker.response_memory import LONG_RESPONSES
from anabranch.controller.zk.session import ConnectionLoss, SessionExpired
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.values import value
from anabranch.protocol.wire import WireField, fields_of

if TYPE_CHECKING:
    from anabranch.broker.peer import Peer
    from anabranch.broker.services import Services
    from anabranch.protocol.codec import Request
    from anabranch.protocol.registry import Api

log: Final = logging.getLogger(__name__)
Handler = Callable[[RequestContext, Any], Awaitable[Any]]


@value
class Served:
    """One API that this broker answers."""

    name: str
    versions: str
    by_controllers: bool = False
    """Served by nodes without replicas too."""
    long_poll: bool = False
    """Whether it only waits and reads, so that it is dropped together with its connection."""
    for_telemetry: bool = False
    """Served only where telemetry is taken."""

    def is_served(self, *, is_broker: bool, telemetry: bool) -> bool:
        """Whether such a node serves it."""
        return (is_broker or self.by_controllers) and (telemetry or not self.for_telemetry)

    @property
    def api(self) -> Api:
        """The API's row in the registry."""
        return BY_NAME[self.name]

    @property
    def module(self) -> str:
        """The module of its handler; the function is named as the module's last part."""
        return "anabranch.broker.handlers." + self.api.module.rpartition(".")[2]

    def load(self) -> Handler:
        """Import the handler."""
        function: Handler = getattr(importlib.import_module(self.module), self.module.rpartition(".")[2])
        return function


HANDLERS: Final[tuple[Served, ...]] = (
    Served("Produce", "0-13"),
    Served("Fetch", "0-18", long_poll=True),
    Served("ListOffsets", "0-11"),
    Served("Metadata", "0-13", by_controllers=True),
    Served("LeaderAndIsr", "0-7"),
    Served("StopReplica", "0-4"),
    Served("UpdateMetadata", "0-8", by_controllers=True),
    Served("ControlledShutdown", "0-3", by_controllers=True),
    Served("OffsetCommit", "0-10"),
    Served("OffsetFetch", "0-10"),
    Served("FindCoordinator", "0-6"),
    Served("JoinGroup", "0-9"),
    Served("Heartbeat", "0-4"),
    Served("LeaveGroup", "0-5"),
    Served("SyncGroup", "0-5"),
    Served("DescribeGroups", "0-6"),
    Served("ListGroups", "0-5"),
    Served("SaslHandshake", "0-1", by_controllers=True),
    Served("ApiVersions", "0-4", by_controllers=True),
    Served("CreateTopics", "0-7", by_controllers=True),
    Served("DeleteTopics", "0-6", by_controllers=True),
    Served("DeleteRecords", "0-2"),
    Served("InitProducerId", "0-5"),
    Served("OffsetForLeaderEpoch", "0-4"),
    Served("AddPartitionsToTxn", "0-5"),
    Served("AddOffsetsToTxn", "0-4"),
    Served("EndTxn", "0-5"),
    Served("WriteTxnMarkers", "0-2"),
    Served("TxnOffsetCommit", "0-5"),
    Served("DescribeAcls", "0-3", by_controllers=True),
    Served("CreateAcls", "0-3", by_controllers=True),
    Served("DeleteAcls", "0-3", by_controllers=True),
    Served("DescribeConfigs", "0-4", by_controllers=True),
    Served("AlterConfigs", "0-2", by_controllers=True),
    Served("AlterReplicaLogDirs", "0-2"),
    Served("DescribeLogDirs", "0-4"),
    Served("SaslAuthenticate", "0-2", by_controllers=True),
    Served("CreatePartitions", "0-3", by_controllers=True),
    Served("CreateDelegationToken", "0-3", by_controllers=True),
    Served("RenewDelegationToken", "0-2", by_controllers=True),
    Served("ExpireDelegationToken", "0-2", by_controllers=True),
    Served("DescribeDelegationToken", "0-3", by_controllers=True),
    Served("DeleteGroups", "0-2"),
    Served("ElectLeaders", "0-2", by_controllers=True),
    Served("IncrementalAlterConfigs", "0-1", by_controllers=True),
    Served("AlterPartitionReassignments", "0-1", by_controllers=True),
    Served("ListPartitionReassignments", "0", by_controllers=True),
    Served("OffsetDelete", "0"),
    Served("DescribeClientQuotas", "0-1", by_controllers=True),
    Served("AlterClientQuotas", "0-1", by_controllers=True),
    Served("DescribeUserScramCredentials", "0", by_controllers=True),
    Served("AlterUserScramCredentials", "0", by_controllers=True),
    Served("DescribeQuorum", "0-2"),
    Served("AlterPartition", "0-3", by_controllers=True),
    Served("UpdateFeatures", "0-2", by_controllers=True),
    Served("Envelope", "0", by_controllers=True),
    Served("DescribeCluster", "0-2", by_controllers=True),
    Served("DescribeProducers", "0"),
    Served("UnregisterBroker", "0"),
    Served("DescribeTransactions", "0"),
    Served("ListTransactions", "0-2"),
    Served("AllocateProducerIds", "0", by_controllers=True),
    Served("ConsumerGroupHeartbeat", "0-1"),
    Served("ConsumerGroupDescribe", "0-1"),
    Served("GetTelemetrySubscriptions", "0", for_telemetry=True),
    Served("PushTelemetry", "0", for_telemetry=True),
    Served("ListConfigResources", "0-1"),
    Served("DescribeTopicPartitions", "0"),
    Served("ShareGroupHeartbeat", "1"),
    Served("ShareGroupDescribe", "1"),
    Served("ShareFetch", "1-2", long_poll=True),
    Served("ShareAcknowledge", "1-2"),
    Served("AddRaftVoter", "0-1"),
    Served("RemoveRaftVoter", "0"),
    Served("InitializeShareGroupState", "0"),
    Served("ReadShareGroupState", "0"),
    Served("WriteShareGroupState", "0-1"),
    Served("DeleteShareGroupState", "0"),
    Served("ReadShareGroupStateSummary", "0-1"),
    Served("StreamsGroupHeartbeat", "0"),
    Served("StreamsGroupDescribe", "0"),
    Served("DescribeShareGroupOffsets", "0-1"),
    Served("AlterShareGroupOffsets", "0"),
    Served("DeleteShareGroupOffsets", "0"),
    Served("ConsumerGroupPosition", "0-1", long_poll=True),
    Served("PartitionLeaderEpochsForPartitions", "0-1", by_controllers=True),
)


@functools.cache
def audiences(kafka_version: str, is_broker: bool, telemetry: bool = False) -> Audiences:
    """What a node of this persona serves, and to whom."""
    served = [row for row in HANDLERS if row.is_served(is_broker=is_broker, telemetry=telemetry)]
    return Audiences(persona(kafka_version), {row.name: row.versions for row in served})


class Dispatcher:
    """Finds the handler of a request and turns its outcome into an answer."""

    inner: Dispatcher
    """Of one that stands around another: that one."""
    outermost = False
    """Whether others that come later have to stand inside of it."""

    def __init__(self, services: Services, rows: tuple[Served, ...] = HANDLERS) -> None:
        is_broker, telemetry = services.settings.is_broker, services.takes_telemetry
        mine = [row for row in rows if row.is_served(is_broker=is_broker, telemetry=telemetry)]
        self._services = services
        self._rows = {row.api.key: row for row in mine}
        self._handlers: dict[int, Handler] = {}
        self.audiences = Audiences(services.persona, {row.name: row.versions for row in mine})
        """What is served to whom."""
        self.requests: dict[int, int] = dict.fromkeys(self._rows, 0)
        """API key -> how many requests were taken up."""
        self.throttling = services.throttling
        self.response_memory = services.response_memory
        self.long_polls: frozenset[int] = frozenset(row.api.key for row in mine if row.long_poll)

    async def answer(self, request: Request, peer: Peer) -> Any:
        """The response of a request; None when it gets none. Raises CloseConnection."""
        if request.body is None:
            return None  # ApiVersions in an unknown version: the connection itself answers (KIP-511)
        key = request.api.key
        self.requests[key] += 1
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._handlers[key] = self._rows[key].load()
        if key in LONG_RESPONSES and self.response_memory.full:
            await self.response_memory.wait_for_room()
        context = RequestContext(self._services, request.version, request.client_id or "", peer)
        try:
            return await handler(context, request.body)
        except KafkaError as error:
            return refusal(request, error.code, str(error))
        except (ConnectionLoss, SessionExpired) as error:
            return refusal(request, ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper has not answered ({error})")
        except CloseConnection:
            raise
        except Exception:
            log.exception("bug in the handler of %s v%d from %s: %r", request.api.name, request.version, peer, request)
            raise HandlerBug(refusal_or_none(request, ErrorCode.UNKNOWN_SERVER_ERROR)) from None


class HandlerBug(CloseConnection):
    """A handler has raised something unexpected. `response` may still be sent before the connection is closed."""

    def __init__(self, response: Any) -> None:
        super().__init__("a bug in the handler", response)


def refusal(request: Request, code: ErrorCode, reason: str) -> Any:
    """An otherwise empty answer with a top-level error code; CloseConnection when the API has no such field."""
    response = refusal_or_none(request, code)
    if response is None:
        raise CloseConnection(f"{request.api.name} refused: {reason}")
    return response


def refusal_or_none(request: Request, code: ErrorCode) -> Any:
    """An otherwise empty answer with a top-level error code, or None when this version has no place for one."""
    fields = fields_of(request.api.response)
    if not any(field.name == "error_code" and field.exists(request.version) for field in fields):
        return None
    return request.api.response(
        **{field.name: code if field.name == "error_code" else empty(field) for field in fields}
    )


def empty(field: WireField) -> Any:
    """An empty value of a field that is legal in every version."""
    if field.default is not MISSING and field.absent_value() is not None:
        return field.absent_value()
    if field.nullable and field.nullable_since == 0:
        return None
    if field.is_array:
        return []
    if field.kind is None:
        assert field.struct is not None
        return field.struct(**{inner.name: empty(inner) for inner in fields_of(field.struct)})
    return _EMPTY.get(field.kind.name, 0)


_EMPTY: Final = {"TEXT": "", "BYTES": b"", "RECORDS": b"", "UUID": bytes(16), "BOOLEAN": False}
