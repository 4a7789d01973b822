"""The routes of an administrator: properties of topics, offsets of groups, ACLs, users and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NotRequired, TypedDict

from anabranch.clients.group_admin import SHARE, commit_each
from anabranch.clients.group_kinds import describe_any_group
from anabranch.control.actions import ActionRefused
from anabranch.control.controlled_cluster import ControlledCluster, time_of_day
from anabranch.control.route import ControlRequest, Route
from anabranch.inspect.offset_reset import TARGETS, new_offsets, parse_target
from anabranch.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from anabranch.protocol.errors import ErrorCode, KafkaError, raise_for_error
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.clients.admin import Admin
    from anabranch.clients.config_admin import ConfigEntry

SOURCES: Final = {1: "topic", 2: "broker", 3: "all brokers", 4: "start of the broker", 5: "default"}
MEMBERS_NAMED_MAX: Final = 10


class ConfigRow(TypedDict):
    """A property of a topic."""

    name: str
    value: str | None
    source: Annotated[str, "where the value is set: topic, broker, all brokers, start of the broker, or default"]
    read_only: bool
    description: str | None


class ConfigsBody(TypedDict):
    """A change of a topic's properties."""

    set: NotRequired[Annotated[dict[str, str], "name -> value"]]
    unset: NotRequired[Annotated[list[str], "names that return to their defaults"]]


class OffsetsBody(TypedDict):
    """A reset of a group's offsets."""

    topic: str
    partition: NotRequired[Annotated[int | None, "the partition; all if left out"]]
    to: Annotated[str, TARGETS]
    lineage: NotRequired[Annotated[bool, "also partitions with later records of the same keys; true if left out"]]
    dry_run: NotRequired[Annotated[bool, "only show what would be committed"]]


class OffsetChangeRow(TypedDict):
    """The change of one offset."""

    topic: str
    partition: int
    before: Annotated[int | None, "the committed offset before"]
    after: int
    error: Annotated[str, "a Kafka error code; NONE if it was committed"]


class OffsetsRow(TypedDict):
    """The changes of a group's offsets."""

    group: str
    members: Annotated[list[str], "member ids; a group with members is refused"]
    committed: bool
    offsets: list[OffsetChangeRow]


class AclRow(TypedDict):
    """An entry of the authorizer."""

    principal: str
    host: str
    permission: str
    operation: str
    resource_type: str
    pattern_type: str
    resource: str


class AclsRow(TypedDict):
    """All entries of the authorizer."""

    authorizer: Annotated[bool, "whether the cluster has an authorizer"]
    acls: list[AclRow]


class UserRow(TypedDict):
    """A SCRAM credential."""

    user: str
    mechanism: str
    iterations: int


class QuotaRow(TypedDict):
    """The quotas of one entity."""

    entity: Annotated[dict[str, str | None], "entity type -> name; null is the default entity"]
    quotas: dict[str, float]


async def get_topic_configs(on: ControlledCluster, request: ControlRequest) -> list[ConfigRow]:
    """Get the properties of a topic."""
    async with on.admin() as admin:
        return _config_rows(await admin.describe_configs(request.words["topic"]))


async def alter_topic_configs(on: ControlledCluster, request: ControlRequest) -> list[ConfigRow]:
    """Set properties of a topic, and return others to their defaults."""
    changes, unset = request.body.get("set", {}), request.body.get("unset", [])
    if not all(isinstance(one, str) for one in (*changes, *changes.values(), *unset)) or not (changes or unset):
        raise ValueError('say {"set": {"retention.ms": "60000"}, "unset": ["cleanup.policy"]}, all of it as text')
    async with on.admin() as admin:
        await admin.alter_configs(request.words["topic"], changes=changes, unset=unset)
        return _config_rows(await admin.describe_configs(request.words["topic"]))


async def reset_group_offsets(on: ControlledCluster, request: ControlRequest) -> OffsetsRow:
    """Change the committed offsets of a group, or show what would be committed."""
    group, body = request.words["group"], request.body
    topic, partition, to = body.get("topic"), body.get("partition"), body.get("to")
    if not isinstance(topic, str) or not isinstance(to, str):
        raise ValueError('a reset is {"topic": "orders", "to": "earliest", "dry_run": true}')
    target = parse_target(to, now=await time_of_day(on))
    async with on.admin() as admin:
        members = await _members(admin, group)
        if members and not body.get("dry_run"):
            named = ", ".join(members[:MEMBERS_NAMED_MAX])
            raise ActionRefused(f"{group} has {len(members)} members, which must stop first: {named}")
        offsets = await new_offsets(admin, group, topic, partition, target, with_lineage=body.get("lineage", True))
        outcomes: Mapping[TopicPartition, ErrorCode] = {}
        if not body.get("dry_run"):
            outcomes = await commit_each(admin.network, group, {one: after for one, (_, after) in offsets.items()})
    rows: list[OffsetChangeRow] = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "before": before,
            "after": after,
            "error": outcomes.get(one, ErrorCode.NONE).name,
        }
        for one, (before, after) in sorted(offsets.items())
    ]
    return {"group": group, "members": members, "committed": not body.get("dry_run"), "offsets": rows}


async def _members(admin: Admin, group: str) -> list[str]:
    """The ids of a group's members; none if it does not exist yet. Raises ActionRefused for a share group."""
    try:
        known = await describe_any_group(admin.network, group)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return []
    if known.kind == SHARE:
        raise ActionRefused(f"{group} is a share group: kafka-share-groups.sh --reset-offsets moves its start")
    return [one.member_id for one in known.members]


async def get_acls(on: ControlledCluster, request: ControlRequest) -> AclsRow:
    """Get the entries of the authorizer; the cluster may have none."""
    async with on.admin() as admin:
        try:
            entries = await admin.describe_acls()
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            return {"authorizer": False, "acls": []}
    rows: list[AclRow] = [
        {
            "principal": acl.principal,
            "host": acl.host,
            "permission": acl.permission.name,
            "operation": acl.operation.name,
            "resource_type": pattern.resource_type.name,
            "pattern_type": pattern.pattern_type.name,
            "resource": pattern.name,
        }
        for pattern, acl in entries
    ]
    return {"authorizer": True, "acls": sorted(rows, key=lambda one: tuple(one.values()))}


async def get_users(on: ControlledCluster, request: ControlRequest) -> list[UserRow]:
    """Get the users with SCRAM credentials."""
    async with on.admin() as admin:
        found = await admin.describe_users()
    return [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, mechanisms in sorted(found.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]


async def get_quotas(on: ControlledCluster, request: ControlRequest) -> list[QuotaRow]:
    """Get the quotas of users, client ids and addresses."""
    query = DescribeClientQuotasRequest(components=[], strict=False)
    async with on.admin() as admin:
        response: DescribeClientQuotasResponse = await admin.network.call_any(query)
    raise_for_error(response.error_code, response.error_message)
    rows: list[QuotaRow] = [
        {
            "entity": {part.entity_type: part.entity_name for part in one.entity},
            "quotas": {value.key: value.value for value in sorted(one.values, key=lambda one: one.key)},
        }
        for one in response.entries or ()
    ]
    return sorted(rows, key=lambda row: sorted((kind, name or "") for kind, name in row["entity"].items()))


def _config_rows(entries: Mapping[str, ConfigEntry]) -> list[ConfigRow]:
    return [
        {
            "name": name,
            "value": one.value,
            "source": SOURCES.get(one.source, str(one.source)),
            "read_only": one.read_only,
            "description": one.documentation,
        }
        for name, one in sorted(entries.items())
    ]


CONFIGS: Final = "/v1/topics/{topic}/configs"
ADMIN_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", CONFIGS, "The properties of a topic, and where each value comes from.", get_topic_configs, waits=True),
    Route(
        "POST",
        CONFIGS,
        "Set properties of a topic, and return others to their defaults.",
        alter_topic_configs,
        body=ConfigsBody,
        waits=True,
    ),
    Route(
        "POST",
        "/v1/groups/{group}/offsets",
        "Change the committed offsets of a group without members, or show what would be committed.",
        reset_group_offsets,
        body=OffsetsBody,
        waits=True,
    ),
    Route("GET", "/v1/acls", "Every entry of the authorizer.", get_acls, waits=True),
    Route("GET", "/v1/users", "Every user with SCRAM credentials.", get_users, waits=True),
    Route("GET", "/v1/quotas", "Every quota of users, client ids and addresses.", get_quotas, waits=True),
)
