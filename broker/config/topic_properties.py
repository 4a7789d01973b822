"""The properties of a topic, Kafka 3.9's and our own: one line each, in the columns of
`broker.config.property_declaration`.

The fifth column names the broker's property that gives the default, and says what both do. A property with a field in
`config.TopicConfig` has an effect; the others are known, checked and described. Sources: Kafka's `LogConfig` and
`ServerTopicConfigSynonyms`; KIP-253 and R16 for `enable.ordered.delivery` and `reshard.legacy.producers`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from anabranch.broker.config.broker_settings import TopicConfig, own_default
from anabranch.broker.config.property_declaration import ConfigKey, table

_TOPIC: Final = """
cleanup.policy | list | = | compact, delete | log.cleanup.policy
compression.gzip.level | int | = | -1 or 1..9 | compression.gzip.level
compression.lz4.level | int | = | 1..17 | compression.lz4.level
compression.type | string | = | uncompressed, zstd, lz4, snappy, gzip, producer | compression.type
compression.zstd.level | int | = | -131072..22 | compression.zstd.level
delete.retention.ms | long | = | 0.. | log.cleaner.delete.retention.ms
enable.ordered.delivery | boolean | = |  |  | KIP-253: whether keys keep their order across resizes.
file.delete.delay.ms | long | = | 0.. | log.segment.delete.delay.ms
flush.messages | long | = | 1.. | log.flush.interval.messages
flush.ms | long | 9223372036854775807 | 0.. | log.flush.interval.ms
follower.replication.throttled.replicas | list |  | PARTITION:BROKER
index.interval.bytes | int | = | 0.. | log.index.interval.bytes
leader.replication.throttled.replicas | list |  | PARTITION:BROKER
local.retention.bytes | long | -2 | -2.. | log.local.retention.bytes
local.retention.ms | long | -2 | -2.. | log.local.retention.ms
max.compaction.lag.ms | long | = | 1.. | log.cleaner.max.compaction.lag.ms
max.message.bytes | int | = | 0.. | message.max.bytes
message.downconversion.enable | boolean | = |  | log.message.downconversion.enable
message.format.version | string | 3.0-IV1 |  | log.message.format.version
message.timestamp.after.max.ms | long | = | 0.. | log.message.timestamp.after.max.ms
message.timestamp.before.max.ms | long | = | 0.. | log.message.timestamp.before.max.ms
message.timestamp.difference.max.ms | long | = | 0.. | log.message.timestamp.difference.max.ms
message.timestamp.type | string | = | CreateTime, LogAppendTime | log.message.timestamp.type
min.cleanable.dirty.ratio | double | = | 0..1 | log.cleaner.min.cleanable.ratio
min.compaction.lag.ms | long | = | 0.. | log.cleaner.min.compaction.lag.ms
min.insync.replicas | int | = | 1.. | min.insync.replicas
preallocate | boolean | false |  | log.preallocate
remote.log.copy.disable | boolean | false
remote.log.delete.on.disable | boolean | false
remote.storage.enable | boolean | false
reshard.legacy.consumers | string | = | auto, gate, ignore | reshard.legacy.consumers
reshard.legacy.consumers.shrink | string | = | auto, warn, refuse | reshard.legacy.consumers.shrink
reshard.legacy.consumers.uncommitted.ms | long | = | -1.. | reshard.legacy.consumers.uncommitted.ms
reshard.legacy.producers | string | = | auto, refuse, allow, verify | reshard.legacy.producers
retention.bytes | long | = |  | log.retention.bytes
retention.ms | long | = | -1.. | log.retention.ms
segment.bytes | int | = | 14.. | log.segment.bytes
segment.index.bytes | int | = | 4.. | log.index.size.max.bytes
segment.jitter.ms | long | 0 | 0.. | log.roll.jitter.ms
segment.ms | long | = | 1.. | log.roll.ms
unclean.leader.election.enable | boolean | = |  | unclean.leader.election.enable
"""


@functools.cache
def topic_properties() -> Mapping[str, ConfigKey]:
    """Every property that a topic may have, by name."""
    return table(_TOPIC, lambda name: own_default(TopicConfig, name))
