"""AlterReplicaLogDirs (key 34), v0-v2, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    name: Text
    partitions: list[Int32]


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDir:
    path: Text
    topics: list[AlterReplicaLogDirTopic]


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    topic_name: Text
    partitions: list[AlterReplicaLogDirPartitionResult]


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[AlterReplicaLogDirTopicResult]
