"""Kafka 4.0: no ZooKeeper to be seen, old versions gone (KIP-896), KIP-848 groups, transactions version 2.

Produce is shown from version 0 on although nothing below 3 is accepted: older librdkafka takes a broker that does not
for one that cannot compress (KAFKA-18659).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.profiles import kafka_3_9
from anabranch.broker.profiles.profile import CompatibilityProfile, changed

RANGES: Final = changed(
    kafka_3_9.RANGES,
    """
Produce 0-12
Fetch 4-17
ListOffsets 1-10
Metadata 0-13
LeaderAndIsr gone
StopReplica gone
UpdateMetadata gone
ControlledShutdown gone
OffsetCommit 2-9
OffsetFetch 1-9
JoinGroup 2-9
DescribeGroups 0-6
CreateTopics 2-7
DeleteTopics 1-6
OffsetForLeaderEpoch 2-4
EndTxn 0-5
WriteTxnMarkers 1
TxnOffsetCommit 0-5
DescribeAcls 1-3
CreateAcls 1-3
DeleteAcls 1-3
DescribeConfigs 1-4
AlterReplicaLogDirs 1-2
DescribeLogDirs 1-4
CreateDelegationToken 1-3
RenewDelegationToken 1-2
ExpireDelegationToken 1-2
DescribeDelegationToken 1-3
DescribeQuorum 0-2
AlterPartition gone
UpdateFeatures 0-2
Envelope gone
DescribeCluster 0-2
UnregisterBroker 0
AllocateProducerIds gone
ConsumerGroupHeartbeat 0-1
ConsumerGroupDescribe 0-1
GetTelemetrySubscriptions 0
PushTelemetry 0
ListConfigResources 0
DescribeTopicPartitions 0
AddRaftVoter 0
RemoveRaftVoter 0
""",
)

GONE: Final = frozenset(
    (
        *("auto.include.jmx.reporter", "broker.id.generation.enable", "client.telemetry.enable"),
        "control.plane.listener.name",
        *("controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms", "delegation.token.master.key"),
        *("eligible.leader.replicas.enable", "inter.broker.protocol.version", "leader.imbalance.per.broker.percentage"),
        *("log.message.downconversion.enable", "log.message.format.version", "log.message.timestamp.difference.max.ms"),
        *("offsets.commit.required.acks", "password.encoder.cipher.algorithm", "password.encoder.iterations"),
        *("password.encoder.key.length", "password.encoder.keyfactory.algorithm", "password.encoder.old.secret"),
        *("password.encoder.secret", "reserved.broker.max.id", "withheld.features", "zookeeper.auth"),
        *("zookeeper.clientCnxnSocket", "zookeeper.connect", "zookeeper.connection.timeout.ms"),
        *("zookeeper.max.in.flight.requests", "zookeeper.metadata.migration.enable", "zookeeper.session.timeout.ms"),
        *(
            "zookeeper.set.acl",
            "zookeeper.ssl.cipher.suites",
            "zookeeper.ssl.client.enable",
            "zookeeper.ssl.crl.enable",
        ),
        *("zookeeper.ssl.enabled.protocols", "zookeeper.ssl.endpoint.identification.algorithm"),
        *("zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.password", "zookeeper.ssl.keystore.type"),
        *("zookeeper.ssl.ocsp.enable", "zookeeper.ssl.protocol", "zookeeper.ssl.truststore.location"),
        *("zookeeper.ssl.truststore.password", "zookeeper.ssl.truststore.type"),
    )
)
NEW_IN_4_1: Final = "group.share.max.share.sessions"
NEW: Final = """
add.partitions.to.txn.retry.backoff.max.ms | int | 100 |  |
add.partitions.to.txn.retry.backoff.ms | int | 20 |  |
remote.list.offsets.request.timeout.ms | long | 30000 |  | cluster
share.coordinator.append.linger.ms | int | 10 |  |
share.coordinator.load.buffer.size | int | 5242880 |  |
share.coordinator.state.topic.compression.codec | int | 0 |  |
share.coordinator.threads | int | 1 |  |
share.coordinator.write.timeout.ms | int | 5000 |  |
share.fetch.purgatory.purge.interval.requests | int | 1000 |  |
"""

PROFILE: Final = CompatibilityProfile(
    version="4.0",
    ranges=RANGES,
    refused_below={"Produce": 3},
    any_broker_is_controller=True,
    answers_like_a_quorum=True,
    leave_group_removes_all_kinds=True,
    tests_pending_first=True,
    converts_messages=False,
    groups_have_configs=True,
    has_client_metrics=True,
    updates_features_together=True,
    gone_properties=GONE | {NEW_IN_4_1},
    gone_topic_properties=frozenset(
        {"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
    ),
    new_properties=NEW,
    new_defaults={
        "group.coordinator.append.linger.ms": "5",
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.coordinator.threads": "4",
        "log.message.timestamp.after.max.ms": "3600000",
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
        "num.recovery.threads.per.data.dir": "2",
        "remote.log.manager.copier.thread.pool.size": "10",
        "remote.log.manager.expiration.thread.pool.size": "10",
        "remote.log.manager.thread.pool.size": "2",
    },
    new_changes={
        "advertised.listeners": "",
        "remote.log.manager.copier.thread.pool.size": "cluster",
        "remote.log.manager.expiration.thread.pool.size": "cluster",
        "remote.log.reader.threads": "cluster",
        "sasl.server.callback.handler.class": "",
    },
    new_topic_bounds={"segment.bytes": "1048576.."},
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 25),
        "transaction.version": (0, 2),
    },
    finalized_features={
        "eligible.leader.replicas.version": 0,
        "group.version": 1,
        "kraft.version": 0,
        "metadata.version": 25,
        "transaction.version": 2,
    },
)
