"""Refusals of topic, configuration, quota and credential administration."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from anabranch.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from anabranch.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from anabranch.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from anabranch.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.protocol.apis.describe_acls import DescribeAclsRequest
from anabranch.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, EntityData
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.apis.unregister_broker import UnregisterBrokerRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.wire import ZERO_UUID
from tests.broker.replication.replica_cluster import until
from tests.contracts.error_codes import World, case


def creating(name: str, *, partitions: int = 1, replicas: int = 1, **more: Any) -> CreateTopicsRequest:
    timeout_ms = more.pop("timeout_ms", 10_000)
    values = {"assignments": [], "configs": []} | more
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **values)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def growing(name: str, count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


def deleting(*, name: str | None = None, topic_id: bytes = ZERO_UUID) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id)], timeout_ms=10_000)


def moving(topic: str, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    rows = [ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])]
    return AlterPartitionReassignmentsRequest(topics=rows)


def electing(topic: str, kind: int = 0) -> ElectLeadersRequest:
    return ElectLeadersRequest(election_type=kind, topic_partitions=[TopicPartitions(topic=topic, partitions=[0])])


@case(ErrorCode.TOPIC_ALREADY_EXISTS)
async def create_twice(world: World) -> Any:
    """CreateTopics of a topic that exists."""
    return await world.call(creating(await world.topic()))


@case(ErrorCode.INVALID_TOPIC_EXCEPTION)
async def create_with_an_illegal_name(world: World) -> Any:
    """CreateTopics of "a b"."""
    return await world.call(creating("a b"))


@case(ErrorCode.INVALID_PARTITIONS)
async def create_no_partitions(world: World) -> Any:
    """CreateTopics with 0 partitions."""
    return await world.call(creating(world.fresh(), partitions=0))


@case(ErrorCode.INVALID_REPLICATION_FACTOR)
async def create_more_replicas_than_brokers(world: World) -> Any:
    """CreateTopics with a replication factor above the number of brokers."""
    return await world.call(creating(world.fresh(), replicas=9))


@case(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
async def create_two_replicas_on_one_broker(world: World) -> Any:
    """CreateTopics with two replicas of a partition on the same broker."""
    rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1])]
    return await world.call(creating(world.fresh(), partitions=-1, replicas=-1, assignments=rows))


@case(ErrorCode.INVALID_CONFIG)
async def create_with_an_unknown_property(world: World) -> Any:
    """CreateTopics with the property "speed"."""
    return await world.call(creating(world.fresh(), configs=[CreatableTopicConfig(name="speed", value="1")]))


@case(ErrorCode.INVALID_REQUEST)
async def create_with_counts_and_assignment(world: World) -> Any:
    """CreateTopics with a number of partitions and an assignment."""
    rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    return await world.call(creating(world.fresh(), assignments=rows))


@case(ErrorCode.POLICY_VIOLATION)
async def create_too_many_partitions(world: World) -> Any:
    """CreateTopics with a million partitions."""
    return await world.call(creating(world.fresh(), partitions=1_000_000))


@case(ErrorCode.REQUEST_TIMED_OUT)
async def create_with_a_short_timeout(world: World) -> Any:
    """CreateTopics with a timeout of 0 ms."""
    return await world.call(creating(world.fresh(), timeout_ms=0))


@case(ErrorCode.NOT_CONTROLLER)
async def create_at_a_node_that_is_not_controller(world: World) -> Any:
    """CreateTopics at a broker that is not the controller."""
    return await world.call(creating(world.fresh()), at=world.other)


@case(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def delete_an_unknown_topic(world: World) -> Any:
    """DeleteTopics of a topic that does not exist."""
    return await world.call(deleting(name="nowhere"))


@case(ErrorCode.UNKNOWN_TOPIC_ID)
async def delete_an_unknown_id(world: World) -> Any:
    """DeleteTopics of a topic id that no topic has."""
    return await world.call(deleting(topic_id=b"\x07" * 16))


@case(ErrorCode.TOPIC_DELETION_DISABLED, delete_topic_enable="false")
async def delete_topic_when_disabled(world: World) -> Any:
    """DeleteTopics where delete.topic.enable is false."""
    return await world.call(deleting(name=await world.topic()))


@case(ErrorCode.LEADER_NOT_AVAILABLE, alone=True)
async def metadata_of_a_partition_without_leader(world: World) -> Any:
    """Metadata of a partition whose only replica is dead."""
    topic = await on_one_broker(world, world.other)
    await world.cluster.crash_broker(world.leader(topic))
    await until_led(world, topic, -1)
    return await world.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))


@case(ErrorCode.OFFSET_OUT_OF_RANGE)
async def delete_records_that_do_not_exist(world: World) -> Any:
    """DeleteRecords beyond the high watermark."""
    topic = await world.topic()
    rows = [DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])]
    return await world.call(DeleteRecordsRequest(topics=rows, timeout_ms=1000), at=world.leader(topic))


@case(ErrorCode.ELECTION_NOT_NEEDED)
async def elect_the_present_leader(world: World) -> Any:
    """ElectLeaders of a partition whose preferred replica leads."""
    return await world.call(electing(await world.topic()))


@case(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, alone=True)
async def elect_an_offline_preferred_replica(world: World) -> Any:
    """ElectLeaders of a partition whose preferred replica is dead, and another leads."""
    topic = world.fresh()
    rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[world.other, world.controller])]
    await world.call(creating(topic, partitions=-1, replicas=-1, assignments=rows))
    await world.known(topic)
    gone, stays = world.other, world.controller
    await world.cluster.crash_broker(gone)
    await until_led(world, topic, stays)
    return await world.call(electing(topic))


@case(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, alone=True)
async def unclean_election_without_live_replicas(world: World) -> Any:
    """ElectLeaders, unclean, of a partition whose replicas are all dead."""
    topic = await on_one_broker(world, world.other)
    await world.cluster.crash_broker(world.leader(topic))
    await until_led(world, topic, -1)
    return await world.call(electing(topic, kind=1))


async def on_one_broker(world: World, broker_id: int) -> str:
    """A topic with its only replica there."""
    topic = world.fresh()
    rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id])]
    await world.call(creating(topic, partitions=-1, replicas=-1, assignments=rows))
    await world.known(topic)
    return topic


async def until_led(world: World, topic: str, leader: int) -> None:
    """Wait until every node has this leader."""

    def led() -> bool:
        found = [node.services.metadata.partition(topic, 0) for node in world.cluster.nodes.values()]
        return all(one is not None and one.leader == leader for one in found)

    await until(led)


@case(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
async def cancel_without_a_reassignment(world: World) -> Any:
    """AlterPartitionReassignments that calls off a move that is not under way."""
    return await world.call(moving(await world.topic(), None))


@case(ErrorCode.REASSIGNMENT_IN_PROGRESS, alone=True)
async def grow_during_a_reassignment(world: World) -> Any:
    """CreatePartitions of a topic that is being moved."""
    topic = await world.topic()
    controller = world.cluster.nodes[world.controller].controller
    assert controller is not None

    async def not_yet(_: AlterPartitionRequest) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])

    controller.alter_partition = not_yet  # type: ignore[method-assign] -- so the move takes as long as we like
    await world.call(moving(topic, [world.not_leader(topic)]))
    return await world.call(growing(topic, 4))


@case(ErrorCode.LOG_DIR_NOT_FOUND)
async def move_a_log_to_an_unknown_directory(world: World) -> Any:
    """AlterReplicaLogDirs to a directory that the broker does not have."""
    topic = await world.topic()
    rows = [AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])]
    return await world.call(AlterReplicaLogDirsRequest(dirs=rows), at=world.leader(topic))


@case(ErrorCode.MISMATCHED_ENDPOINT_TYPE)
async def describe_controllers_at_a_broker(world: World) -> Any:
    """DescribeCluster v1 of the controllers, at a broker."""
    return await world.call(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2))


@case(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
async def describe_an_unknown_endpoint_type(world: World) -> Any:
    """DescribeCluster v1 of endpoint type 9."""
    return await world.call(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=9))


@case(ErrorCode.UNSUPPORTED_VERSION)
async def describe_quotas_of_an_unknown_kind(world: World) -> Any:
    """DescribeClientQuotas of the entity type "group"."""
    rows = [ComponentData(entity_type="group", match_type=2, match=None)]
    return await world.call(DescribeClientQuotasRequest(components=rows, strict=False))


@case(ErrorCode.THROTTLING_QUOTA_EXCEEDED, alone=True)
async def create_more_than_the_quota(world: World) -> Any:
    """CreateTopics v7 of a client that has used up its controller_mutation_rate."""
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="c")],
        ops=[OpData(key="controller_mutation_rate", value=0.1, remove=False)],
    )
    await world.call(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    throttling = world.cluster.nodes[world.controller].services.throttling
    await until(lambda: throttling is not None and throttling.active)
    await world.call(creating(world.fresh(), partitions=9))
    return await world.call(creating(world.fresh()))


@case(ErrorCode.ILLEGAL_SASL_STATE)
async def sasl_handshake_on_plaintext(world: World) -> Any:
    """SaslHandshake on a PLAINTEXT listener."""
    return await world.call(SaslHandshakeRequest(mechanism="PLAIN"))


@case(ErrorCode.SECURITY_DISABLED)
async def describe_acls_without_an_authorizer(world: World) -> Any:
    """DescribeAcls: there is no authorizer."""
    return await world.call(
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    )


@case(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
async def create_a_token_on_plaintext(world: World) -> Any:
    """CreateDelegationToken on a PLAINTEXT listener."""
    return await world.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))


def storing(name: str, mechanism: int = 1, iterations: int = 4096) -> AlterUserScramCredentialsRequest:
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])


@case(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
async def scram_credential_with_an_unknown_mechanism(world: World) -> Any:
    """AlterUserScramCredentials with mechanism 9."""
    return await world.call(storing("u", mechanism=9))


@case(ErrorCode.UNACCEPTABLE_CREDENTIAL)
async def scram_credential_with_few_iterations(world: World) -> Any:
    """AlterUserScramCredentials with 1 iteration."""
    return await world.call(storing("u", iterations=1))


@case(ErrorCode.RESOURCE_NOT_FOUND)
async def describe_the_credential_of_an_unknown_user(world: World) -> Any:
    """DescribeUserScramCredentials of a user without any."""
    return await world.call(DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")]))


@case(ErrorCode.DUPLICATE_RESOURCE)
async def describe_a_credential_twice(world: World) -> Any:
    """DescribeUserScramCredentials of the same user twice."""
    return await world.call(DescribeUserScramCredentialsRequest(users=[UserName(name="u"), UserName(name="u")]))


@case(ErrorCode.INCONSISTENT_CLUSTER_ID, kafka_version="4.1")
async def voter_of_another_cluster(world: World) -> Any:
    """RemoveRaftVoter with the id of another cluster (Kafka 4)."""
    request = RemoveRaftVoterRequest(cluster_id="another", voter_id=1, voter_directory_id=ZERO_UUID)
    return await world.call(request)


@case(ErrorCode.BROKER_ID_NOT_REGISTERED, kafka_version="4.1")
async def unknown_broker_unregistered(world: World) -> Any:
    """UnregisterBroker of a broker that is not there (Kafka 4)."""
    return await world.call(UnregisterBrokerRequest(broker_id=99))
