"""The declared properties of group, transaction and share coordinators, and of single groups.

`broker.config.config_def` explains the columns. Sources: Kafka's `GroupCoordinatorConfig`, `ShareGroupConfig`,
`TransactionLogConfig` and `GroupConfig` (KIP-848, KIP-932, KIP-1071).
"""

from __future__ import annotations

from typing import Final

INTERNAL_REPLICATION: Final = frozenset(
    {
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.replication.factor",
    }
)
"""The replication factors of internal topics. Clusters of tests keep to them if one is given."""

COORDINATORS: Final = """
[broker] offsets and transactions
internal.topics.limited.to.live.brokers internal | boolean | false |  |  | Whether a new internal topic gets a replica on each live broker where fewer are left than its replication factor; in Kafka its creation fails.
offset.metadata.max.bytes | int | 4096 |  |  | The most metadata that a committed offset may carry.
offsets.commit.timeout.ms | int | 5000 | 1.. |  | How long a commit waits to be replicated.
offsets.retention.check.interval.ms | long | 600000 | 1.. |  | How often offsets are checked for retention.
offsets.retention.minutes | int | 10080 | 1.. |  | How long the offsets of a group without members are kept.
offsets.topic.compression.codec | int | 0 |  |  | The codec of the offsets topic.
offsets.topic.num.partitions | int | 50 | 1.. |  | Partitions of the offsets topic.
offsets.topic.replication.factor | short | 3 | 1.. |  | Replicas of the offsets topic.
offsets.topic.segment.bytes | int | 104857600 | 1.. |  | Segment size of the offsets topic.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | 10000 | 1.. |  | How often transactions are checked for timeouts.
transaction.max.timeout.ms | int | 900000 | 1.. |  | The longest transaction timeout that a producer may ask for.
transaction.partition.verification.enable | boolean | true |  | cluster | Whether leaders verify with the coordinator that a partition is in the transaction.
transaction.remove.expired.transaction.cleanup.interval.ms | int | 3600000 | 1.. |  | How often transactional ids are checked for expiration.
transaction.state.log.min.isr | int | 2 | 1.. |  | In-sync replicas that a write to the transactions topic needs.
transaction.state.log.num.partitions | int | 50 | 1.. |  | Partitions of the transactions topic.
transaction.state.log.replication.factor | short | 3 | 1.. |  | Replicas of the transactions topic.
transaction.state.log.segment.bytes | int | 104857600 | 1.. |  | Segment size of the transactions topic.
transactional.id.expiration.ms | int | 604800000 | 1.. |  | How long an idle transactional id is kept.

[broker] groups
group.consumer.assignors | list | uniform,range | uniform, range |  | The server-side assignors of consumer groups (KIP-848), the default first.
group.consumer.heartbeat.interval.ms | int | 5000 | 1.. |  | The heartbeat interval of consumer groups (KIP-848).
group.consumer.max.heartbeat.interval.ms | int | 15000 | 1.. |  | The longest heartbeat interval that a consumer group may set.
group.consumer.max.session.timeout.ms | int | 60000 | 1.. |  | The longest session timeout that a consumer group may set.
group.consumer.max.size | int | 2147483647 | 1.. |  | The most members of a consumer group (KIP-848).
group.consumer.migration.policy | string | bidirectional | bidirectional, upgrade, downgrade, disabled |  | Whether groups change between classic and KIP-848.
group.consumer.min.heartbeat.interval.ms | int | 5000 | 1.. |  | The shortest heartbeat interval that a consumer group may set.
group.consumer.min.session.timeout.ms | int | 45000 | 1.. |  | The shortest session timeout that a consumer group may set.
group.consumer.session.timeout.ms | int | 45000 | 1.. |  | The session timeout of members of consumer groups (KIP-848).
group.coordinator.rebalance.protocols ..3.9 | list | classic | consumer, classic, share, streams, unknown |  | The kinds of groups that are served.
group.coordinator.rebalance.protocols 4.0..4.0 | list | classic,consumer | consumer, classic, share, streams, unknown |  | The kinds of groups that are served.
group.coordinator.rebalance.protocols 4.1.. | list | classic,consumer,streams | consumer, classic, share, streams, unknown |  | The kinds of groups that are served.
group.initial.rebalance.delay.ms | int | 3000 |  |  | How long a new classic group waits for more members.
group.max.session.timeout.ms | int | 1800000 |  |  | The longest session timeout that a member of a classic group may ask for.
group.max.size | int | 2147483647 | 1.. |  | The most members of a classic group.
group.min.session.timeout.ms | int | 6000 |  |  | The shortest session timeout that a member of a classic group may ask for.
group.streams.heartbeat.interval.ms 4.1.. | int | 5000 | 1.. |  | The heartbeat interval of streams groups.
group.streams.initial.rebalance.delay.ms 4.2.. | int | 3000 | 0.. |  | How long a new streams group waits for more members.
group.streams.max.heartbeat.interval.ms 4.1.. | int | 15000 | 1.. |  | The longest heartbeat interval that a streams group may set.
group.streams.max.session.timeout.ms 4.1.. | int | 60000 | 1.. |  | The longest session timeout that a streams group may set.
group.streams.max.size 4.1.. | int | 2147483647 | 1.. |  | The most members of a streams group.
group.streams.max.standby.replicas 4.1.. | int | 2 | 0.. |  | The most standby replicas that a streams group may set.
group.streams.min.heartbeat.interval.ms 4.1.. | int | 5000 | 1.. |  | The shortest heartbeat interval that a streams group may set.
group.streams.min.session.timeout.ms 4.1.. | int | 45000 | 1.. |  | The shortest session timeout that a streams group may set.
group.streams.num.standby.replicas 4.1.. | int | 0 | 0.. |  | Standby replicas of each stateful task of a streams group.
group.streams.session.timeout.ms 4.1.. | int | 45000 | 1.. |  | The session timeout of members of streams groups.

[broker] share groups
group.share.delivery.count.limit | int | 5 | 2..10 |  | How often a record is delivered to share groups before it is archived.
group.share.heartbeat.interval.ms | int | 5000 | 1.. |  | The heartbeat interval of share groups.
group.share.max.heartbeat.interval.ms | int | 15000 | 1.. |  | The longest heartbeat interval that a share group may set.
group.share.max.record.lock.duration.ms | int | 60000 | 30000..3600000 |  | The longest lock of records that a share group may set.
group.share.max.session.timeout.ms | int | 60000 | 1.. |  | The longest session timeout that a share group may set.
group.share.max.share.sessions 4.1.. | int | 2000 | 1.. |  | The most share sessions at a time.
group.share.max.size | short | 200 | 1..1000 |  | The most members of a share group.
group.share.min.heartbeat.interval.ms | int | 5000 | 1.. |  | The shortest heartbeat interval that a share group may set.
group.share.min.record.lock.duration.ms | int | 15000 | 1000..30000 |  | The shortest lock of records that a share group may set.
group.share.min.session.timeout.ms | int | 45000 | 1.. |  | The shortest session timeout that a share group may set.
group.share.partition.max.record.locks | int | 2000 | 100..10000 |  | The most records of a partition that members of a share group hold at a time.
group.share.record.lock.duration.ms | int | 30000 | 1000..60000 |  | How long a member of a share group holds a record before others may get it.
group.share.session.timeout.ms | int | 45000 | 1.. |  | The session timeout of members of share groups.
share.coordinator.snapshot.update.records.per.snapshot 4.0.. | int | 500 | 0..500 |  | Updates of a share partition's state between two snapshots.
share.coordinator.state.topic.min.isr 4.0.. | short | 2 | 1.. |  | In-sync replicas that a write to the share state topic needs.
share.coordinator.state.topic.num.partitions 4.0.. | int | 50 | 1.. |  | Partitions of the share state topic.
share.coordinator.state.topic.replication.factor 4.0.. | short | 3 | 1.. |  | Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes 4.0.. | int | 104857600 | 1.. |  | Segment size of the share state topic.

[broker: coordinators have no threads, and append without waiting for more records]
group.coordinator.append.linger.ms ..3.9 | int | 10 | 0..
group.coordinator.append.linger.ms 4.0..4.1 | int | 5 | 0..
group.coordinator.append.linger.ms 4.2.. | int | -1
group.coordinator.threads ..3.9 | int | 1 | 1..
group.coordinator.threads 4.0.. | int | 4 | 1..
share.coordinator.append.linger.ms 4.0..4.0 | int | 10
share.coordinator.append.linger.ms 4.1..4.1 | int | 5
share.coordinator.append.linger.ms 4.2.. | int | -1
share.coordinator.threads 4.0.. | int | 1

[broker: coordinators load their topics in reads of 256 KiB]
offsets.load.buffer.size | int | 5242880 | 1..
share.coordinator.load.buffer.size 4.0.. | int | 5242880
transaction.state.log.load.buffer.size | int | 5242880 | 1..

[broker: records of coordinators are stored as they are written, with acks=all]
offsets.commit.required.acks ..3.9 | short | -1
share.coordinator.state.topic.compression.codec 4.0.. | int | 0
share.coordinator.write.timeout.ms 4.0.. | int | 5000

[broker: leaders ask the coordinator of a transaction again after fixed times]
add.partitions.to.txn.retry.backoff.max.ms 4.0.. | int | 100
add.partitions.to.txn.retry.backoff.ms 4.0.. | int | 20

[broker: transactions are not part of two-phase commits]
transaction.two.phase.commit.enable 4.1.. | boolean | false

[broker: share groups have one assignor, and no bound of their number]
group.share.assignors 4.1.. | list | simple
group.share.max.groups ..4.0 | short | 10 | 1..100

[group]
consumer.heartbeat.interval.ms | int | 5000 | 1.. |  | The heartbeat interval of a consumer group.
consumer.session.timeout.ms | int | 45000 | 1.. |  | The session timeout of members of a consumer group.
share.auto.offset.reset | string | latest |  |  | The offset that a share group starts at: latest, earliest or by_duration:PT1H.
share.heartbeat.interval.ms | int | 5000 | 1.. |  | The heartbeat interval of a share group.
share.isolation.level | string | read_uncommitted | read_committed, read_uncommitted |  | Whether a share group gets records of open transactions.
share.record.lock.duration.ms | int | 30000 | 1000.. |  | How long a member of a share group holds a record before others may get it.
share.session.timeout.ms | int | 45000 | 1.. |  | The session timeout of members of a share group.
streams.heartbeat.interval.ms | int | 5000 | 1.. |  | The heartbeat interval of a streams group.
streams.initial.rebalance.delay.ms | int | 3000 | 0.. |  | How long a new streams group waits for more members.
streams.num.standby.replicas | int | 0 | 0.. |  | Standby replicas of each stateful task of a streams group.
streams.session.timeout.ms | int | 45000 | 1.. |  | The session timeout of members of a streams group.
"""  # noqa: E501
