"""Every API of a Kafka broker of 2.8 to 4.2, and the two that KIP-253 adds (decisions D1, D3, D19).

A row has the key, name, last version (the first is always 0) and the first flexible version. The handlers of *this*
broker (`broker.dispatch.dispatcher`) and its profile (`broker.profiles`) decide which versions it serves. Message
classes are imported at first use: a client of five APIs does not load sixty.
"""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Api:
    """One API key. `flexible_from` is None where no version has tagged fields."""

    key: int
    name: str
    last_version: int
    flexible_from: int | None
    sent: int | None = None
    """The newest version that this project's own clients send, if lower than the last."""

    @property
    def newest_sent(self) -> int:
        """The newest version that this project's own clients send."""
        return self.last_version if self.sent is None else self.sent

    @property
    def module(self) -> str:
        """The module with its messages."""
        return "anabranch.protocol.apis." + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()

    @functools.cached_property
    def request(self) -> type[Any]:
        """The class of its requests."""
        return _load(self.module, self.name + "Request")

    @functools.cached_property
    def response(self) -> type[Any]:
        """The class of its responses."""
        return _load(self.module, self.name + "Response")

    def flexible(self, version: int) -> bool:
        """Whether this version uses compact encodings and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """Return 0, 1 or 2. ControlledShutdown v0 alone has no client id."""
        if self.flexible_from is not None and version >= self.flexible_from:
            return 2
        return 0 if self.key == 7 and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """Return 0 or 1. ApiVersions always has 0, so that clients with a too high version can read it (KIP-511)."""
        return 1 if self.flexible_from is not None and version >= self.flexible_from and self.key != 18 else 0


def _load(module: str, name: str) -> type[Any]:
    message: type[Any] = getattr(importlib.import_module(module), name)
    return message


APIS: Final[tuple[Api, ...]] = (
    Api(0, "Produce", 13, 9, sent=11),
    Api(1, "Fetch", 18, 12),
    Api(2, "ListOffsets", 11, 6),
    Api(3, "Metadata", 13, 9),
    Api(4, "LeaderAndIsr", 7, 4),
    Api(5, "StopReplica", 4, 2),
    Api(6, "UpdateMetadata", 8, 6),
    Api(7, "ControlledShutdown", 3, 3),
    Api(8, "OffsetCommit", 10, 8, sent=9),
    Api(9, "OffsetFetch", 10, 6, sent=9),
    Api(10, "FindCoordinator", 6, 3),
    Api(11, "JoinGroup", 9, 6),
    Api(12, "Heartbeat", 4, 4),
    Api(13, "LeaveGroup", 5, 4),
    Api(14, "SyncGroup", 5, 4),
    Api(15, "DescribeGroups", 6, 5),
    Api(16, "ListGroups", 5, 3),
    Api(17, "SaslHandshake", 1, None),
    Api(18, "ApiVersions", 4, 3),
    Api(19, "CreateTopics", 7, 5),
    Api(20, "DeleteTopics", 6, 4),
    Api(21, "DeleteRecords", 2, 2),
    Api(22, "InitProducerId", 5, 2),
    Api(23, "OffsetForLeaderEpoch", 4, 4),
    Api(24, "AddPartitionsToTxn", 5, 3),
    Api(25, "AddOffsetsToTxn", 4, 3),
    Api(26, "EndTxn", 5, 3, sent=4),
    Api(27, "WriteTxnMarkers", 2, 1),
    Api(28, "TxnOffsetCommit", 5, 3, sent=4),
    Api(29, "DescribeAcls", 3, 2),
    Api(30, "CreateAcls", 3, 2),
    Api(31, "DeleteAcls", 3, 2),
    Api(32, "DescribeConfigs", 4, 4),
    Api(33, "AlterConfigs", 2, 2),
    Api(34, "AlterReplicaLogDirs", 2, 2),
    Api(35, "DescribeLogDirs", 4, 2),
    Api(36, "SaslAuthenticate", 2, 2),
    Api(37, "CreatePartitions", 3, 2),
    Api(38, "CreateDelegationToken", 3, 2),
    Api(39, "RenewDelegationToken", 2, 2),
    Api(40, "ExpireDelegationToken", 2, 2),
    Api(41, "DescribeDelegationToken", 3, 2),
    Api(42, "DeleteGroups", 2, 2),
    Api(43, "ElectLeaders", 2, 2),
    Api(44, "IncrementalAlterConfigs", 1, 1),
    Api(45, "AlterPartitionReassignments", 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0),
    Api(47, "OffsetDelete", 0, None),
    Api(48, "DescribeClientQuotas", 1, 1),
    Api(49, "AlterClientQuotas", 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0),
    Api(55, "DescribeQuorum", 2, 0),
    Api(56, "AlterPartition", 3, 0),
    Api(57, "UpdateFeatures", 2, 0),
    Api(58, "Envelope", 0, 0),
    Api(60, "DescribeCluster", 2, 0),
    Api(61, "DescribeProducers", 0, 0),
    Api(64, "UnregisterBroker", 0, 0),
    Api(65, "DescribeTransactions", 0, 0),
    Api(66, "ListTransactions", 2, 0),
    Api(67, "AllocateProducerIds", 0, 0),
    Api(68, "ConsumerGroupHeartbeat", 1, 0),
    Api(69, "ConsumerGroupDescribe", 1, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0),
    Api(72, "PushTelemetry", 0, 0),
    Api(74, "ListConfigResources", 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 0),
    Api(77, "ShareGroupDescribe", 1, 0),
    Api(78, "ShareFetch", 2, 0),
    Api(79, "ShareAcknowledge", 2, 0),
    Api(80, "AddRaftVoter", 1, 0),
    Api(81, "RemoveRaftVoter", 0, 0),
    Api(83, "InitializeShareGroupState", 0, 0),
    Api(84, "ReadShareGroupState", 0, 0),
    Api(85, "WriteShareGroupState", 1, 0),
    Api(86, "DeleteShareGroupState", 0, 0),
    Api(87, "ReadShareGroupStateSummary", 1, 0),
    Api(88, "StreamsGroupHeartbeat", 0, 0),
    Api(89, "StreamsGroupDescribe", 0, 0),
    Api(90, "DescribeShareGroupOffsets", 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0),
    Api(2530, "ConsumerGroupPosition", 1, 1),
    Api(2531, "PartitionLeaderEpochsForPartitions", 1, 1),
)

BY_KEY: Final = {api.key: api for api in APIS}
BY_NAME: Final = {api.name: api for api in APIS}


def api_of(message: type[Any]) -> Api:
    """Return the API of a request or response class."""
    return BY_NAME[message.__name__.removesuffix("Request").removesuffix("Response")]
