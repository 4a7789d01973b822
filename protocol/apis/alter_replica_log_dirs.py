"""AlterReplicaLogDirs (key 34), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message


@message
class AlterReplicaLogDirTopic:
    name: Text
    partitions: list[Int32]


@message
class AlterReplicaLogDir:
    path: Text
    topics: list[AlterReplicaLogDirTopic]


@message
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@message
class AlterReplicaLogDirTopicResult:
    topic_name: Text
    partitions: list[AlterReplicaLogDirPartitionResult]


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[AlterReplicaLogDirTopicResult]
