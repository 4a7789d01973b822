"""The declared properties of group, transaction and share coordinators, and of single groups.

`broker.config.config_def` explains the columns. Sources: Kafka's `GroupCoordinatorConfig`, `ShareGroupConfig`,
`TransactionLogConfig` and `GroupConfig` (KIP-848, KIP-932, KIP-1071).
"""

from __future__ import annotations

from typing import Final

COORDINATORS: Final = """
[broker] offsets and transactions
offset.metadata.max.bytes | int | 4096 |  |  | The most metadata that a committed offset may carry.
offsets.commit.timeout.ms | int | 5000 | 1.. |  | How long a commit waits to be replicated.
offsets.retention.check.interval.ms | long | 600000 | 1.. |  | How often expired offsets are looked for.
offsets.retention.minutes | int | 10080 | 1.. |  | How long the offsets of a group without members are kept.
offsets.topic.compression.codec | int | 0 |  |  | The codec of the offsets topic.
offsets.topic.num.partitions | int | 50 | 1.. |  | Partitions of the offsets topic.
offsets.topic.replication.factor | short | 3 | 1.. |  | Replicas of the offsets topic.
offsets.topic.segment.bytes | int | 104857600 | 1.. |  | Segment size of the offsets topic.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | 10000 | 1.. |  | The pause between looks for late ones.
transaction.max.timeout.ms | int | 900000 | 1.. |  | The longest transaction that a producer may ask for.
transaction.partition.verification.enable | boolean | true |  | cluster | Whether leaders ask its coordinator first.
transaction.remove.expired.transaction.cleanup.interval.ms | int | 3600000 | 1.. |  | The pause between looks for expired ids.
transaction.state.log.min.isr | int | 2 | 1.. |  | Replicas that must have what the transactions topic is to keep.
transaction.state.log.num.partitions | int | 50 | 1.. |  | Partitions of the transactions topic.
transaction.state.log.replication.factor | short | 3 | 1.. |  | Replicas of the transactions topic.
transaction.state.log.segment.bytes | int | 104857600 | 1.. |  | Segment size of the transactions topic.
transactional.id.expiration.ms | int | 604800000 | 1.. |  | After how much silence a transactional id is forgotten.

[broker] groups
group.consumer.assignors | list | uniform,range | uniform, range |  | The assignors of groups whose broker assigns, default first.
group.consumer.heartbeat.interval.ms | int | 5000 | 1.. |  | How often their members send heartbeats.
group.consumer.max.heartbeat.interval.ms | int | 15000 | 1.. |  | The longest interval that a group may be given.
group.consumer.max.session.timeout.ms | int | 60000 | 1.. |  | The longest session that a group may be given.
group.consumer.max.size | int | 2147483647 | 1.. |  | The most members of one group whose broker assigns.
group.consumer.migration.policy | string | bidirectional | bidirectional, upgrade, downgrade, disabled |  | Who changes kinds.
group.consumer.min.heartbeat.interval.ms | int | 5000 | 1.. |  | The shortest interval that a group may be given.
group.consumer.min.session.timeout.ms | int | 45000 | 1.. |  | The shortest session that a group may be given.
group.consumer.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member of such a group is out.
group.coordinator.rebalance.protocols ..3.9 | list | classic | consumer, classic, share, streams, unknown |  | Kinds of group.
group.coordinator.rebalance.protocols 4.0..4.0 | list | classic,consumer | consumer, classic, share, streams, unknown |  | Kinds of group.
group.coordinator.rebalance.protocols 4.1.. | list | classic,consumer,streams | consumer, classic, share, streams, unknown |  | Kinds of group.
group.initial.rebalance.delay.ms | int | 3000 |  |  | How long a new group waits for more members.
group.max.session.timeout.ms | int | 1800000 |  |  | The longest session that a member may ask for.
group.max.size | int | 2147483647 | 1.. |  | The most members of one group.
group.min.session.timeout.ms | int | 6000 |  |  | The shortest session that a member may ask for.
group.streams.heartbeat.interval.ms 4.1.. | int | 5000 | 1.. |  | How often members of a group of Kafka Streams send heartbeats.
group.streams.initial.rebalance.delay.ms 4.2.. | int | 3000 | 0.. |  | How long the first members of such a group wait for others.
group.streams.max.heartbeat.interval.ms 4.1.. | int | 15000 | 1.. |  | The longest interval that a group may be given.
group.streams.max.session.timeout.ms 4.1.. | int | 60000 | 1.. |  | The longest session that a group may be given.
group.streams.max.size 4.1.. | int | 2147483647 | 1.. |  | The most members of one such group.
group.streams.max.standby.replicas 4.1.. | int | 2 | 0.. |  | The most copies of a state that a group may be given.
group.streams.min.heartbeat.interval.ms 4.1.. | int | 5000 | 1.. |  | The shortest interval that a group may be given.
group.streams.min.session.timeout.ms 4.1.. | int | 45000 | 1.. |  | The shortest session that a group may be given.
group.streams.num.standby.replicas 4.1.. | int | 0 | 0.. |  | How many copies of a state its members keep beside the active one.
group.streams.session.timeout.ms 4.1.. | int | 45000 | 1.. |  | After how much silence a member of such a group is out.

[broker] share groups
group.share.delivery.count.limit | int | 5 | 2..10 |  | How often a shared record is handed out before it is given up.
group.share.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members of groups that share send heartbeats.
group.share.max.heartbeat.interval.ms | int | 15000 | 1.. |  | The longest interval that a group may be given.
group.share.max.record.lock.duration.ms | int | 60000 | 30000..3600000 |  | The longest lock that a group may be given.
group.share.max.session.timeout.ms | int | 60000 | 1.. |  | The longest session that a group may be given.
group.share.max.share.sessions 4.1.. | int | 2000 | 1.. |  | The most share sessions at a time.
group.share.max.size | short | 200 | 1..1000 |  | The most members of one group that shares.
group.share.min.heartbeat.interval.ms | int | 5000 | 1.. |  | The shortest interval that a group may be given.
group.share.min.record.lock.duration.ms | int | 15000 | 1000..30000 |  | The shortest lock that a group may be given.
group.share.min.session.timeout.ms | int | 45000 | 1.. |  | The shortest session that a group may be given.
group.share.partition.max.record.locks | int | 2000 | 100..10000 |  | The most records of a partition in flight.
group.share.record.lock.duration.ms | int | 30000 | 1000..60000 |  | For how long a shared record is its member's.
group.share.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member of such a group is out.
share.coordinator.snapshot.update.records.per.snapshot 4.0.. | int | 500 | 0..500 |  | Updates between two snapshots.
share.coordinator.state.topic.min.isr 4.0.. | short | 2 | 1.. |  | Replicas that must have such state.
share.coordinator.state.topic.num.partitions 4.0.. | int | 50 | 1.. |  | Partitions of the topic of that state.
share.coordinator.state.topic.replication.factor 4.0.. | short | 3 | 1.. |  | Replicas of the topic of that state.
share.coordinator.state.topic.segment.bytes 4.0.. | int | 104857600 | 1.. |  | Segment size of the topic of that state.

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

[broker: coordinators load their topics in reads of 5 MiB]
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
consumer.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members whose broker assigns send heartbeats.
consumer.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member whose broker assigns is out.
share.auto.offset.reset | string | latest |  |  | Where a group that shares begins: latest, earliest, by_duration:PT1H.
share.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members of a group that shares send heartbeats.
share.isolation.level | string | read_uncommitted | read_committed, read_uncommitted |  | Whether they get open records.
share.record.lock.duration.ms | int | 30000 | 1000.. |  | For how long a shared record is its member's.
share.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member of a group that shares is out.
streams.heartbeat.interval.ms | int | 5000 | 1.. |  | How often members of a group of Kafka Streams send heartbeats.
streams.initial.rebalance.delay.ms | int | 3000 | 0.. |  | How long the first members of such a group wait for others.
streams.num.standby.replicas | int | 0 | 0.. |  | How many copies of a state they keep beside the active one.
streams.session.timeout.ms | int | 45000 | 1.. |  | After how much silence a member of such a group is out.
"""  # noqa: E501
