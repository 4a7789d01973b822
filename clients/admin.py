"""`Admin`: creates, deletes and resizes topics, changes settings, reassigns replicas, describes the cluster.

Requests that change something go to the node that serves the controller's requests, and are resent if that node changes
meanwhile. A refusal is raised as a `KafkaError` with Kafka's code and the broker's text. Retrying is safe: a resize
that has happened already, or a topic that an earlier attempt of the same call created before its response was lost,
counts as done.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from anabranch.clients.acl_admin import create_acls, delete_acls, describe_acls
from anabranch.clients.admin_connection import AdminConnection
from anabranch.clients.config import NetworkConfig, check_int32, parse_servers
from anabranch.clients.config_admin import alter_configs, describe_configs, list_client_metrics
from anabranch.clients.replica_admin import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import make_security
from anabranch.clients.token_admin import DelegationToken, create_token, describe_tokens, expire_token, renew_token
from anabranch.clients.topic_admin import (
    ClusterDescription,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topics,
)
from anabranch.clients.user_admin import ITERATIONS, delete_user, describe_users, set_password
from anabranch.protocol.acls import Acl, AclFilter, ResourcePattern
from anabranch.protocol.apis.create_partitions import CreatePartitionsTopic
from anabranch.protocol.suggestion import suggest_arguments

if TYPE_CHECKING:
    from anabranch.clients.config_admin import ConfigEntry
    from anabranch.clients.metadata import Topic
    from anabranch.clients.replica_admin import LogDir, Outcomes, Reassignment
    from anabranch.protocol.topic_partition import TopicPartition


@suggest_arguments
class Admin(AdminConnection):
    """Administers a cluster; an async context manager.

        async with Admin("127.0.0.1:9092") as admin:
            await admin.create_topics([NewTopic(name="orders", partitions=4)])
            await admin.create_partitions("orders", 6)

    Every call may raise, besides what is listed with it, a `ConnectionError` when no node can be reached, a
    `TimeoutError` when a node does not answer within the request timeout, and a `KafkaError` with any code that the
    cluster refuses the request with. A value that no request can carry is a `ValueError`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them: brokers from which the others are learned.
        client_id: The name under which brokers log and count this client's requests.
        request_timeout_ms: How long one request may take, and how long the cluster may take for a change.
        rng: Where random choices come from, such as the pause before a retry.
        **security: TLS and login, by aiokafka's names: `security_protocol`, `ssl_cafile`, `ssl_certfile`,
            `ssl_keyfile`, `sasl_mechanism`, `sasl_plain_username`, `sasl_plain_password`; all of them are
            `SecurityArguments`.

    Raises:
        ValueError: A bootstrap server is not of the form HOST:PORT, or the timeout is out of range.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        *,
        client_id: str = "anabranch-admin",
        request_timeout_ms: int = 30000,
        rng: random.Random | None = None,
        **security: Unpack[SecurityArguments],
    ) -> None:
        check_int32("request_timeout_ms", request_timeout_ms)
        config = NetworkConfig(
            bootstrap_servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=make_security(type(self), **security),
        )
        super().__init__(config, rng)
        self._timeout_ms = request_timeout_ms

    # topics

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics. The cluster tries all of them; then the first refusal is raised.

        Args:
            topics: What to create.
            validate_only: Let the cluster check them and create none.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG,
                INVALID_TOPIC_EXCEPTION for a name that cannot be; the message names the topic.
        """
        await create_topics(self.network, topics, self._timeout_ms, validate_only=validate_only)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, str]:
        """Delete topics. The cluster tries all of them; then the first refusal is raised.

        Returns:
            Topic -> what the end of its deletion still waits for, such as a broker that is down and holds logs of it; a
            topic that is gone is left out. Until the end clients do not see the topic, and none of its name can be
            created.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED; the message names the topic.
        """
        return await delete_topics(self.network, names, self._timeout_ms)

    async def create_partitions(
        self, topic: str, count: int, *, allow_shrink: bool = False, validate_only: bool = False
    ) -> None:
        """Resize a topic: split its partitions into more, or merge them into fewer. Keys keep their order.

        Returns when the resize is published, which is when clients begin to use the new count. Merged partitions are
        removed later, once their records have expired.

        Args:
            topic: The topic's name.
            count: How many partitions it is to have, 1 or more.
            allow_shrink: Without it, a smaller count than now is refused, as Kafka does. With it, it still is while
                groups of other clients read the topic whose order of keys is kept for them, which no merge can, unless
                the topic has `reshard.legacy.consumers.shrink=warn`.
            validate_only: Validate the request without changing anything.

        Raises:
            KafkaError: INVALID_PARTITIONS for the count that it has already, or one that it cannot have;
                REASSIGNMENT_IN_PROGRESS while its replicas move; POLICY_VIOLATION for a topic that may not shrink now;
                REQUEST_TIMED_OUT when publishing takes longer than the request timeout: the resize goes on,
                `wait_for_generation` waits for it.
        """
        request = CreatePartitionsTopic(name=topic, count=count, assignments=None, allow_shrink=allow_shrink)
        await create_partitions(self.network, request, self._timeout_ms, validate_only=validate_only)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """List the topics.

        Args:
            include_internal: Include internal topics, such as `__consumer_offsets`.

        Returns:
            Their names, sorted.
        """
        topics = await describe_topics(self.network, None)
        return sorted(name for name, topic in topics.items() if include_internal or not topic.internal)

    async def describe_topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Describe topics: partitions, leaders, in-sync replicas, generation and lineage.

        Args:
            names: The topics; None for all of them.

        Returns:
            Name -> topic.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, with the name of a topic that does not exist.
        """
        return await describe_topics(self.network, names)

    async def describe_topic(self, name: str) -> Topic:
        """Describe one topic. Returns and raises as `describe_topics`."""
        return (await self.describe_topics([name]))[name]

    # cluster

    async def describe_cluster(self) -> ClusterDescription:
        """Describe the cluster: its id, its live brokers, its controller."""
        return await describe_cluster(self.network)

    # configurations

    async def describe_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        client_metrics: str | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, ConfigEntry]:
        """Describe the settings of a topic, a broker, or a subscription to client metrics.

        Args:
            topic: The topic's name.
            broker: The broker's id; -1 (`config_admin.ALL_BROKERS`) for the values of all that have none of their own.
            client_metrics: The subscription's name.
            names: The settings' names; None for all.

        Returns:
            Name -> value and where it comes from.

        Raises:
            ValueError: None of these is named, or several are.
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
            ConnectionError: The broker does not exist, or cannot be reached.
        """
        return await describe_configs(self.network, topic, broker, names, client_metrics)

    async def alter_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        client_metrics: str | None = None,
        changes: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change single settings of a topic, a broker, or a subscription to client metrics; the others stay.

        Running nodes apply them. A subscription exists while it has a setting.

        Args:
            topic: The topic's name.
            broker: The broker's id; -1 (`config_admin.ALL_BROKERS`) for all brokers.
            client_metrics: The subscription's name; its settings are metrics, interval.ms and match.
            changes: Name -> new value.
            unset: Names of settings that go back to their default.
            append: Name -> comma-separated values to add to a setting that is a list.
            subtract: Name -> comma-separated values to remove from a list.
            validate_only: Validate the changes without making them.

        Raises:
            ValueError: None of these is named, or several are.
            KafkaError: INVALID_CONFIG for a setting that does not exist, or a value that it cannot have;
                INVALID_REQUEST for one that only a restart can change.
            ConnectionError: The broker does not exist, or cannot be reached.
        """
        await alter_configs(
            self.network,
            topic,
            broker,
            client_metrics=client_metrics,
            changes=changes or {},
            unset=unset,
            append=append or {},
            subtract=subtract or {},
            validate_only=validate_only,
        )

    async def list_client_metrics(self) -> list[str]:
        """List the subscriptions to client metrics.

        Returns:
            Their names, for `describe_configs` and `alter_configs`.

        Raises:
            KafkaError: The cluster's Kafka has none.
        """
        return await list_client_metrics(self.network)

    # replicas

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the oldest records of partitions.

        Args:
            before: Partition -> the offset of the first record that is kept; -1 deletes all committed records.

        Returns:
            Partition -> its new log start offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION for a topic that is compacted only.
        """
        return await delete_records(self.network, before, self._timeout_ms)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> Outcomes:
        """Elect leaders: preferred replicas that are in sync, or with `unclean` any replica that is alive.

        Args:
            partitions: The partitions; None for all that need an election.
            unclean: Elect replicas that are not in sync where no other is alive: acknowledged records are lost.

        Returns:
            Partition -> None, or the error: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
            ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
        """
        return await elect_leaders(self.network, partitions, unclean=unclean, timeout_ms=self._timeout_ms)

    async def alter_partition_reassignments(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Start reassigning partitions to other brokers; `list_partition_reassignments` shows the progress.

        Args:
            moves: Partition -> the ids of its new replicas, the preferred leader first; None cancels a reassignment.

        Returns:
            Partition -> None once its reassignment has started, or the error: INVALID_REPLICA_ASSIGNMENT,
            NO_REASSIGNMENT_IN_PROGRESS, OPERATION_NOT_ATTEMPTED while the topic is resized.
        """
        return await alter_partition_reassignments(self.network, moves, self._timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """List the partitions whose replicas are being reassigned.

        Args:
            partitions: Only these partitions; None for all.

        Returns:
            Partition -> its replicas, which of them are being added, which are to be removed.
        """
        return await list_partition_reassignments(self.network, partitions, self._timeout_ms)

    async def describe_log_dirs(self, broker: int) -> list[LogDir]:
        """Describe the data directories of a broker.

        Args:
            broker: The broker's id.

        Returns:
            The directories, each with its size in bytes and the size and lag of every log in it.

        Raises:
            ConnectionError: The broker does not exist, or cannot be reached.
        """
        return await describe_log_dirs(self.network, broker)

    async def alter_replica_log_dirs(self, broker: int, moves: Mapping[TopicPartition, str]) -> Outcomes:
        """Start moving replicas of one broker between its data directories.

        Args:
            broker: The broker's id.
            moves: Partition -> the path of the directory.

        Returns:
            Partition -> None when its move has begun, or why it has not: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR.
        """
        return await alter_replica_log_dirs(self.network, broker, moves)

    # users

    async def describe_users(self, users: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """Describe users with SCRAM credentials.

        Args:
            users: The names; None for all.

        Returns:
            User -> mechanism -> iterations.

        Raises:
            KafkaError: RESOURCE_NOT_FOUND: a named user does not exist.
        """
        return await describe_users(self.network, users)

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Sequence[str] = ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        iterations: int = ITERATIONS,
    ) -> None:
        """Create a user with SCRAM credentials, or replace its password. The password itself is not sent.

        Args:
            user: The name.
            password: The password.
            mechanisms: The SCRAM mechanisms with which the user may log in.
            iterations: How many rounds of hashing, from 4096 to 16384.
        """
        await set_password(self.network, user, password, mechanisms=mechanisms, iterations=iterations)

    async def delete_user(self, user: str, *, mechanisms: Sequence[str] | None = None) -> None:
        """Delete SCRAM credentials of a user.

        Args:
            user: The name.
            mechanisms: The SCRAM mechanisms that are removed; None for all.

        Raises:
            KafkaError: RESOURCE_NOT_FOUND: there is no such user.
        """
        await delete_user(self.network, user, mechanisms)

    # access control lists

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[tuple[ResourcePattern, Acl]]:
        """List entries of access control lists.

        Args:
            acl_filter: The entries to list; None for all.

        Returns:
            Pairs of what an entry is about and what it says.

        Raises:
            KafkaError: SECURITY_DISABLED: brokers have no `authorizer.class.name`. CLUSTER_AUTHORIZATION_FAILED.
        """
        return await describe_acls(self.network, acl_filter or AclFilter())

    async def create_acls(self, entries: Sequence[tuple[ResourcePattern, Acl]]) -> None:
        """Create ACL entries. An existing entry is no error.

        The broker that handled the request applies them at once, and the others soon.

        Args:
            entries: Pairs of what an entry is about and what it says.

        Raises:
            KafkaError: SECURITY_DISABLED: brokers have no `authorizer.class.name`. CLUSTER_AUTHORIZATION_FAILED.
                INVALID_REQUEST: an entry is invalid, such as one about a cluster of another name.
        """
        await create_acls(self.network, entries)

    async def delete_acls(self, *acl_filters: AclFilter) -> list[tuple[ResourcePattern, Acl]]:
        """Delete ACL entries.

        Args:
            *acl_filters: The entries to delete; an `AclFilter()` without arguments means all.

        Returns:
            The entries that are gone.

        Raises:
            KafkaError: SECURITY_DISABLED: brokers have no `authorizer.class.name`. CLUSTER_AUTHORIZATION_FAILED.
        """
        return await delete_acls(self.network, acl_filters)

    # delegation tokens

    async def create_token(
        self, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationToken:
        """Create a delegation token. Clients log in with it by SCRAM, in place of a password.

        Args:
            owner: The principal that it logs in, as User:NAME; None: this client's.
            renewers: The principals that may renew and expire it besides its owner, as User:NAME.
            max_lifetime_ms: The time up to which it can be renewed; -1: the maximum of the brokers.

        Returns:
            The token, with its secret.

        Raises:
            KafkaError: DELEGATION_TOKEN_AUTH_DISABLED: brokers have no `delegation.token.secret.key`.
                DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: this client has not logged in, or has logged in with a token.
                DELEGATION_TOKEN_AUTHORIZATION_FAILED: this client may not act for the owner.
        """
        return await create_token(self.network, owner, renewers, max_lifetime_ms)

    async def describe_tokens(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """List delegation tokens with their secrets, as far as the caller may see them.

        Args:
            owners: Principals that own, requested or may renew them, as User:NAME; None for all.
        """
        return await describe_tokens(self.network, owners)

    async def renew_token(self, secret: str, period_ms: int = -1) -> int:
        """Extend the lifetime of a delegation token.

        Args:
            secret: The token's secret.
            period_ms: The new lifetime from now on; -1: the default of the brokers.

        Returns:
            When it ends, in milliseconds since the epoch.

        Raises:
            KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        return await renew_token(self.network, secret, period_ms)

    async def expire_token(self, secret: str, period_ms: int = -1) -> int:
        """Expire a delegation token.

        Args:
            secret: The token's secret.
            period_ms: The remaining lifetime; -1: the token expires at once.

        Returns:
            When it ends, in milliseconds since the epoch.

        Raises:
            KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        return await expire_token(self.network, secret, period_ms)
