"""The declared properties of logs, topics and replication. `broker.config.config_def` explains the columns.

Sources: Kafka's `LogConfig`, `ServerLogConfigs`, `ReplicationConfigs` and `ServerTopicConfigSynonyms`; KIP-253 and R16
for `enable.ordered.delivery` and `reshard.*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STORAGE: Final = """
[broker] logs
compression.gzip.level | int | -1 | -1 or 1..9 | cluster | The level of gzip, where the broker compresses.
compression.lz4.level | int | 9 | 1..17 | cluster | The level of lz4, where the broker compresses.
compression.type | string | producer | uncompressed, zstd, lz4, snappy, gzip, producer | cluster | The codec of stored batches.
compression.zstd.level | int | 3 | -131072..22 | cluster | The level of zstd, where the broker compresses.
log.cleaner.backoff.ms | long | 15000 | 0.. | cluster | The pause of the log cleaner when there is nothing to compact.
log.cleaner.delete.retention.ms | long | 86400000 | 0.. | cluster | How long compaction keeps tombstones.
log.cleaner.enable | boolean | true |  |  | Whether logs are compacted.
log.cleaner.max.compaction.lag.ms | long | 9223372036854775807 | 1.. | cluster | The age at which a record is compacted, however clean its log is.
log.cleaner.min.cleanable.ratio | double | 0.5 | 0..1 | cluster | The dirty part of a log at which it is compacted.
log.cleaner.min.compaction.lag.ms | long | 0 | 0.. | cluster | How long a record stays uncompacted.
log.cleanup.policy | list | delete | compact, delete | cluster | Whether old segments are deleted or compacted.
log.dir | string | - |  |  | The directory of the logs, if log.dirs names none.
log.dirs | string | - |  |  | The directories of the logs, separated by commas.
log.flush.interval.messages | long | 9223372036854775807 | 1.. | cluster | After how many records a log is flushed.
log.index.interval.bytes | int | 4096 | 0.. | cluster | The bytes of records between two index entries.
log.index.size.max.bytes | int | 10485760 | 4.. | cluster | The size at which a full index rolls its segment.
log.message.downconversion.enable ..3.9 | boolean | true |  | cluster | Whether records are converted for consumers that know only message sets.
log.message.timestamp.after.max.ms ..3.9 | long | 9223372036854775807 | 0.. | cluster | How far a record's time may lie in the future.
log.message.timestamp.after.max.ms 4.0.. | long | 3600000 | 0.. | cluster | How far a record's time may lie in the future.
log.message.timestamp.before.max.ms | long | 9223372036854775807 | 0.. | cluster | How far a record's time may lie in the past.
log.message.timestamp.difference.max.ms ..3.9 | long | 9223372036854775807 | 0.. | cluster | Deprecated: how far a record's time may differ from the broker's.
log.message.timestamp.type | string | CreateTime | CreateTime, LogAppendTime | cluster | Whether records carry the time of their creation or of their append.
log.retention.bytes | long | -1 |  | cluster | The size to which a partition is kept; -1: without bound.
log.retention.check.interval.ms | long | 300000 | 1.. |  | How often segments are checked for retention.
log.retention.hours | int | 168 |  |  | log.retention.ms in hours, where that is not set.
log.retention.minutes | int | - |  |  | log.retention.ms in minutes, where that is not set.
log.retention.ms | long | - |  | cluster | How long records are kept; -1: for ever.
log.roll.hours | int | 168 | 1.. |  | log.roll.ms in hours, where that is not set.
log.roll.ms | long | - |  | cluster | The age at which a new segment begins.
log.segment.bytes | int | 1073741824 | 14.. | cluster | The size at which a new segment begins.
log.segment.delete.delay.ms | long | 60000 | 0.. | cluster | How long the files of deleted segments and logs remain.
message.max.bytes | int | 1048588 | 0.. | cluster | The largest batch that is accepted.
message.max.decompressed.ratio | int | 16 | 1.. |  | The bound of a batch's records when decompressed, as a multiple of max.message.bytes.
producer.id.expiration.check.interval.ms internal | long | 600000 |  |  | How often producer ids are checked for expiration.
producer.id.expiration.ms | int | 86400000 | 1.. | cluster | How long the state of an idle producer id is kept.

[broker] topics and replicas
auto.create.topics.enable | boolean | true |  |  | Whether a request for a topic that does not exist creates it.
auto.leader.rebalance.enable | boolean | true |  |  | Whether preferred replicas become leaders again.
controlled.shutdown.enable | boolean | true |  |  | Whether leaderships move to other nodes before the node stops.
controlled.shutdown.max.retries ..3.9 | int | 3 |  |  | How often the controller is asked to move leaderships before a stop.
controlled.shutdown.retry.backoff.ms ..3.9 | long | 5000 |  |  | The pause before the controller is asked again to move leaderships.
default.replication.factor | int | 1 |  |  | Replicas of a topic that is created without a number of replicas.
delete.topic.enable | boolean | true |  |  | Whether topics may be deleted.
fetch.max.bytes | int | 57671680 | 1024.. |  | The largest answer to a Fetch.
max.incremental.fetch.session.cache.slots | int | 1000 | 0.. |  | The most fetch sessions at a time.
min.insync.replicas | int | 1 | 1.. | cluster | How many replicas must be in sync for acks=all.
num.partitions | int | 1 | 1.. |  | Partitions of a topic that is created without a number of partitions.
replica.fetch.backoff.ms | int | 1000 | 0.. |  | The pause of a follower after a failed fetch.
replica.fetch.max.bytes | int | 1048576 | 0.. |  | The most bytes of one partition that a follower fetches at a time.
replica.fetch.min.bytes | int | 1 |  |  | The fewest bytes that the answer to a follower's fetch waits for.
replica.fetch.response.max.bytes | int | 10485760 | 0.. |  | The most bytes that a follower fetches at a time.
replica.fetch.wait.max.ms | int | 500 |  |  | The longest that the answer to a follower's fetch waits.
replica.high.watermark.checkpoint.interval.ms | long | 5000 |  |  | How often high watermarks are written to disk.
replica.lag.time.max.ms | long | 30000 |  |  | How long a follower may lag before it leaves the ISR.
replica.selector.class | string | - |  |  | The selector of the replica that a consumer reads from; RackAwareReplicaSelector: in its rack.
reshard.legacy.consumers | string | auto | auto, gate, ignore | cluster | Whether coordinators hold the gates of members without gates of their own.
reshard.legacy.consumers.shrink | string | auto | auto, warn, refuse | cluster | Whether a topic may shrink while stock consumers read it.
reshard.legacy.consumers.uncommitted.ms | long | -1 | -1.. | cluster | How long a group without a commit keeps gates closed; -1: without bound.
reshard.legacy.producers | string | auto | auto, refuse, allow, verify | cluster | Whether producers without generations may write to resized topics.
unclean.leader.election.enable | boolean | false |  | cluster | Whether a replica that is not in sync may become leader when no other can.

[broker: one task cleans all logs, without buffers to size]
log.cleaner.dedupe.buffer.size | long | 134217728 |  | cluster
log.cleaner.io.buffer.load.factor | double | 0.9 |  | cluster
log.cleaner.io.buffer.size | int | 524288 | 0.. | cluster
log.cleaner.io.max.bytes.per.second | double | 1.7976931348623157E308 |  | cluster
log.cleaner.threads | int | 1 | 0.. | cluster

[broker: logs are flushed after a number of records, not after a time]
log.flush.interval.ms | long | - |  | cluster
log.flush.offset.checkpoint.interval.ms | int | 60000 | 0..
log.flush.scheduler.interval.ms | long | 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms | int | 60000 | 0..

[broker: files grow as they are written, and segments roll without jitter]
log.preallocate | boolean | false |  | cluster
log.roll.jitter.hours | int | 0 | 0..
log.roll.jitter.ms | long | - |  | cluster

[broker: Kafka ignores it as well since 3.0]
log.message.format.version ..3.9 | string | 3.0-IV1

[broker: one task recovers logs, one directory after the other]
num.recovery.threads.per.data.dir ..3.9 | int | 1 | 1.. | cluster
num.recovery.threads.per.data.dir 4.0.. | int | 2 | 1.. | cluster

[broker: replication is not throttled, and each leader is followed by one task]
alter.log.dirs.replication.quota.window.num | int | 11 | 1..
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | 1..
num.replica.alter.log.dirs.threads | int | -
num.replica.fetchers | int | 1 |  | cluster
replica.socket.receive.buffer.bytes | int | 65536
replica.socket.timeout.ms | int | 30000
replication.quota.window.num | int | 11 | 1..
replication.quota.window.size.seconds | int | 1 | 1..

[broker: delayed operations leave the purgatory when they complete]
delete.records.purgatory.purge.interval.requests | int | 1
fetch.purgatory.purge.interval.requests | int | 1000
producer.purgatory.purge.interval.requests | int | 1000
share.fetch.purgatory.purge.interval.requests 4.0.. | int | 1000

[broker: there is no tiered storage]
log.local.retention.bytes | long | -2 | -2.. | cluster
log.local.retention.ms | long | -2 | -2.. | cluster
remote.fetch.max.wait.ms | int | 500 | 1.. | cluster
remote.list.offsets.request.timeout.ms 4.0.. | long | 30000 |  | cluster
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | 1.. | cluster
remote.log.manager.copier.thread.pool.size ..3.9 | int | -1
remote.log.manager.copier.thread.pool.size 4.0.. | int | 10 |  | cluster
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | 1.. | cluster
remote.log.manager.copy.quota.window.num | int | 11 | 1..
remote.log.manager.copy.quota.window.size.seconds | int | 1 | 1..
remote.log.manager.expiration.thread.pool.size ..3.9 | int | -1
remote.log.manager.expiration.thread.pool.size 4.0.. | int | 10 |  | cluster
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | 1.. | cluster
remote.log.manager.fetch.quota.window.num | int | 11 | 1..
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | 1..
remote.log.manager.follower.thread.pool.size 4.2.. | int | 2 |  | cluster
remote.log.manager.task.interval.ms | long | 30000 | 1..
remote.log.manager.thread.pool.size ..3.9 | int | 10 | 1..
remote.log.manager.thread.pool.size 4.0.. | int | 2 | 1..
remote.log.metadata.custom.metadata.max.bytes | int | 128 | 0..
remote.log.metadata.manager.class.name | string | org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path | string | -
remote.log.metadata.manager.impl.prefix | string | rlmm.config.
remote.log.metadata.manager.listener.name | string | -
remote.log.reader.max.pending.tasks | int | 100 | 1..
remote.log.reader.threads ..3.9 | int | 10 | 1..
remote.log.reader.threads 4.0.. | int | 10 | 1.. | cluster
remote.log.storage.manager.class.name | string | -
remote.log.storage.manager.class.path | string | -
remote.log.storage.manager.impl.prefix | string | rsm.config.
remote.log.storage.system.enable | boolean | false

[topic] each inherits the broker's property that the fifth column names
cleanup.policy | list | delete | compact, delete | log.cleanup.policy
compression.gzip.level | int | -1 | -1 or 1..9 | compression.gzip.level
compression.lz4.level | int | 9 | 1..17 | compression.lz4.level
compression.type | string | producer | uncompressed, zstd, lz4, snappy, gzip, producer | compression.type
compression.zstd.level | int | 3 | -131072..22 | compression.zstd.level
delete.retention.ms | long | 86400000 | 0.. | log.cleaner.delete.retention.ms
enable.ordered.delivery | boolean | true |  |  | Whether keys keep their order across resizes (KIP-253).
file.delete.delay.ms | long | 60000 | 0.. | log.segment.delete.delay.ms
flush.messages | long | 9223372036854775807 | 1.. | log.flush.interval.messages
index.interval.bytes | int | 4096 | 0.. | log.index.interval.bytes
max.compaction.lag.ms | long | 9223372036854775807 | 1.. | log.cleaner.max.compaction.lag.ms
max.message.bytes | int | 1048588 | 0.. | message.max.bytes
message.downconversion.enable ..3.9 | boolean | true |  | log.message.downconversion.enable
message.timestamp.after.max.ms | long | 9223372036854775807 | 0.. | log.message.timestamp.after.max.ms
message.timestamp.before.max.ms | long | 9223372036854775807 | 0.. | log.message.timestamp.before.max.ms
message.timestamp.difference.max.ms ..3.9 | long | 9223372036854775807 | 0.. | log.message.timestamp.difference.max.ms
message.timestamp.type | string | CreateTime | CreateTime, LogAppendTime | log.message.timestamp.type
min.cleanable.dirty.ratio | double | 0.5 | 0..1 | log.cleaner.min.cleanable.ratio
min.compaction.lag.ms | long | 0 | 0.. | log.cleaner.min.compaction.lag.ms
min.insync.replicas | int | 1 | 1.. | min.insync.replicas
reshard.legacy.consumers | string | auto | auto, gate, ignore | reshard.legacy.consumers
reshard.legacy.consumers.shrink | string | auto | auto, warn, refuse | reshard.legacy.consumers.shrink
reshard.legacy.consumers.uncommitted.ms | long | -1 | -1.. | reshard.legacy.consumers.uncommitted.ms
reshard.legacy.producers | string | auto | auto, refuse, allow, verify | reshard.legacy.producers
retention.bytes | long | -1 |  | log.retention.bytes
retention.ms | long | 604800000 | -1.. | log.retention.ms
segment.bytes ..3.9 | int | 1073741824 | 14.. | log.segment.bytes
segment.bytes 4.0.. | int | 1073741824 | 1048576.. | log.segment.bytes
segment.index.bytes | int | 10485760 | 4.. | log.index.size.max.bytes
segment.ms | long | 604800000 | 1.. | log.roll.ms
unclean.leader.election.enable | boolean | false |  | unclean.leader.election.enable

[topic: logs are flushed after a number of records, not after a time]
flush.ms | long | 9223372036854775807 | 0.. | log.flush.interval.ms

[topic: files grow as they are written, and segments roll without jitter]
preallocate | boolean | false |  | log.preallocate
segment.jitter.ms | long | 0 | 0.. | log.roll.jitter.ms

[topic: Kafka ignores it as well since 3.0]
message.format.version ..3.9 | string | 3.0-IV1 |  | log.message.format.version

[topic: replication is not throttled]
follower.replication.throttled.replicas | list |  | PARTITION:BROKER
leader.replication.throttled.replicas | list |  | PARTITION:BROKER

[topic: there is no tiered storage]
local.retention.bytes | long | -2 | -2.. | log.local.retention.bytes
local.retention.ms | long | -2 | -2.. | log.local.retention.ms

[topic refused: there is no tiered storage]
remote.log.copy.disable | boolean | false
remote.log.delete.on.disable | boolean | false
remote.storage.enable | boolean | false
"""  # noqa: E501

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
"""Property -> its synonyms, in order of precedence."""

COARSE: Final[Mapping[str, tuple[str, int]]] = {
    "log.retention.hours": ("log.retention.ms", 3600000),
    "log.retention.minutes": ("log.retention.ms", 60000),
    "log.roll.hours": ("log.roll.ms", 3600000),
}
"""Property in hours or minutes -> the property in ms, and ms per unit. Later entries take precedence."""
