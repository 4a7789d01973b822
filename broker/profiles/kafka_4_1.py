"""Kafka 4.1: topics by their ids to produce to, share groups as a preview."""

from __future__ import annotations

import dataclasses
from typing import Final

from anabranch.broker.profiles import kafka_4_0
from anabranch.broker.profiles.profile import changed

RANGES: Final = changed(
    kafka_4_0.RANGES,
    """
Produce 0-13
Fetch 4-18
JoinGroup 0-9
AlterPartitionReassignments 0-1
ListTransactions 0-2
ListConfigResources 0-1
ShareGroupHeartbeat 1
ShareGroupDescribe 1
ShareFetch 1
ShareAcknowledge 1
InitializeShareGroupState 0
ReadShareGroupState 0
WriteShareGroupState 0
DeleteShareGroupState 0
ReadShareGroupStateSummary 0
DescribeShareGroupOffsets 0
AlterShareGroupOffsets 0
DeleteShareGroupOffsets 0
""",
)

NEW: Final = """
group.share.assignors | list | simple |  |
group.streams.heartbeat.interval.ms | int | 5000 |  |
group.streams.max.heartbeat.interval.ms | int | 15000 |  |
group.streams.max.session.timeout.ms | int | 60000 |  |
group.streams.max.size | int | 2147483647 |  |
group.streams.max.standby.replicas | int | 2 |  |
group.streams.min.heartbeat.interval.ms | int | 5000 |  |
group.streams.min.session.timeout.ms | int | 45000 |  |
group.streams.num.standby.replicas | int | 0 |  |
group.streams.session.timeout.ms | int | 45000 |  |
sasl.oauthbearer.assertion.algorithm | string | RS256 |  |
sasl.oauthbearer.assertion.claim.aud | string | - |  |
sasl.oauthbearer.assertion.claim.exp.seconds | int | 300 |  |
sasl.oauthbearer.assertion.claim.iss | string | - |  |
sasl.oauthbearer.assertion.claim.jti.include | boolean | false |  |
sasl.oauthbearer.assertion.claim.nbf.seconds | int | 60 |  |
sasl.oauthbearer.assertion.claim.sub | string | - |  |
sasl.oauthbearer.assertion.file | string | - |  |
sasl.oauthbearer.assertion.private.key.file | string | - |  |
sasl.oauthbearer.assertion.private.key.passphrase | password | - |  |
sasl.oauthbearer.assertion.template.file | string | - |  |
sasl.oauthbearer.client.credentials.client.id | string | - |  |
sasl.oauthbearer.client.credentials.client.secret | password | - |  |
sasl.oauthbearer.jwt.retriever.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever |  |
sasl.oauthbearer.jwt.validator.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator |  |
sasl.oauthbearer.scope | string | - |  |
share.coordinator.append.linger.ms | int | 5 |  |
transaction.two.phase.commit.enable | boolean | false |  |
"""

PROFILE: Final = dataclasses.replace(
    kafka_4_0.PROFILE,
    version="4.1",
    ranges=RANGES,
    gone_properties=kafka_4_0.GONE | {"group.share.max.groups"},
    new_properties=kafka_4_0.PROFILE.new_properties.rstrip() + NEW,
    new_defaults={
        **kafka_4_0.PROFILE.new_defaults,
        "group.coordinator.rebalance.protocols": "classic,consumer,streams",
        "group.share.partition.max.record.locks": "2000",
    },
    supported_features={
        **kafka_4_0.PROFILE.supported_features,
        "metadata.version": (7, 27),
        "share.version": (0, 1),
    },
    finalized_features={
        **kafka_4_0.PROFILE.finalized_features,
        "eligible.leader.replicas.version": 1,
        "metadata.version": 27,
        "share.version": 0,
    },
)
