"""`anabranch acls`: adds, lists and removes access control entries for topics, groups and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.remote import as_json, bootstrap, run, tell, tell_none, with_admin

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.protocol.acls import Acl, ResourcePattern

OPERATIONS = (
    *("all", "read", "write", "create", "delete", "alter", "describe", "cluster-action"),
    *("describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens"),
)


def resources(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the resources of an entry."""
    for option in (
        click.option("--prefixed", is_flag=True, help="Entries whose names are prefixes of resource names."),
        click.option("--token", "tokens", multiple=True, metavar="ID", help="Delegation tokens of this id."),
        click.option("--transactional-id", "ids", multiple=True, metavar="ID", help="Producers with this id."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="NAME",
            help="This group; * for all.",
            shell_complete=completion.groups,
        ),
        click.option(
            "--topic",
            "topics",
            multiple=True,
            metavar="NAME",
            help="This topic; * for all.",
            shell_complete=completion.topics,
        ),
    ):
        command = option(command)
    return command


def subjects(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the principals of an entry, and its permission."""
    for option in (
        click.option("--host", metavar="ADDRESS", help="Only from this IP address. Default: all."),
        click.option(
            "--operation",
            "operations",
            multiple=True,
            type=click.Choice(OPERATIONS),
            help="The operation. Default: all.",
        ),
        click.option("--deny", multiple=True, metavar="User:NAME", help="The denied principal; User:* for all."),
        click.option("--allow", multiple=True, metavar="User:NAME", help="The allowed principal; User:* for all."),
    ):
        command = option(command)
    return command


@click.group(
    cls=CommandGroup,
    name="acls",
    epilog="""\b
Examples:
  anabranch acls add --allow User:alice --operation read --topic orders --group billing
  anabranch acls add --allow User:bob --operation write --topic log- --prefixed
  anabranch acls add --deny User:* --host 10.0.0.7 --topic '*'
  anabranch acls list
  anabranch acls remove --allow User:alice --topic orders
""",
)
def command() -> None:
    """Control who may do what, while brokers run.

    They need authorizer.class.name, as in: anabranch up --config
    authorizer.class.name=kafka.security.authorizer.AclAuthorizer --config super.users=User:admin
    """


@command.command(
    epilog="""\b
Examples:
  anabranch acls add --allow User:alice --operation read --topic orders --group billing
  anabranch acls add --allow User:bob --operation write --topic log- --prefixed
  anabranch acls add --allow User:CN=app --operation write --transactional-id app-1
"""
)
@subjects
@resources
@bootstrap
def add(bootstrap: str, **typed: Any) -> None:
    """Add entries: one for each user, operation and name."""
    about, says = list(_patterns(typed)), list(_entries(typed))
    if not about:
        raise click.UsageError("no resource: write --topic, --group, --transactional-id, --token or --cluster")
    if not says:
        raise click.UsageError("no principal: write --allow User:NAME or --deny User:NAME")

    async def act(admin: Admin) -> None:
        added = [(pattern, acl) for pattern in about for acl in says]
        await admin.create_acls(added)
        for one in added:
            click.echo(f"added: {_line(*one)}")

    run(bootstrap, act)


@command.command(
    name="list",
    epilog="""\b
Examples:
  anabranch acls list
  anabranch acls list --topic orders              all entries that apply to orders, also by prefix or *
  anabranch acls list --allow User:alice --json
""",
)
@subjects
@resources
@as_json
@with_admin()
async def list_acls(admin: Admin, as_json: bool, **typed: Any) -> None:
    """List all entries, or those that match."""
    filters = _filters(typed, matching=not typed["prefixed"])
    entries = [one for acl_filter in filters for one in await admin.describe_acls(acl_filter)]
    if not entries:
        tell_none(as_json, "no entries")
    for pattern, acl in entries:
        tell(as_json, _row(pattern, acl), [_line(pattern, acl)])


@command.command(
    epilog="""\b
Examples:
  anabranch acls remove --allow User:alice --topic orders
  anabranch acls remove --topic log- --prefixed
  anabranch acls remove --deny User:bob
"""
)
@subjects
@resources
@bootstrap
def remove(bootstrap: str, **typed: Any) -> None:
    """Remove the entries that match all options."""
    if not any(given for option, given in typed.items() if option != "prefixed"):
        raise click.UsageError("no filter: write at least one of --topic, --group, --allow, --deny and so on")

    async def act(admin: Admin) -> None:
        gone = await admin.delete_acls(*_filters(typed, matching=False))
        for one in gone:
            click.echo(f"removed: {_line(*one)}")
        if not gone:
            click.echo("no entry matches")

    run(bootstrap, act)


def _patterns(typed: dict[str, Any]) -> Iterator[ResourcePattern]:
    from anabranch.protocol.acls import CLUSTER_NAME, PatternType, ResourcePattern, ResourceType

    tree = PatternType.PREFIXED if typed["prefixed"] else PatternType.LITERAL
    for kind, names in (
        (ResourceType.TOPIC, typed["topics"]),
        (ResourceType.GROUP, typed["groups"]),
        (ResourceType.TRANSACTIONAL_ID, typed["ids"]),
        (ResourceType.DELEGATION_TOKEN, typed["tokens"]),
    ):
        for name in names:
            yield ResourcePattern(kind, name, tree)
    if typed["cluster"]:
        yield ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)


def _entries(typed: dict[str, Any]) -> Iterator[Acl]:
    from anabranch.protocol.acls import ANYWHERE, Acl, Operation, Permission

    operations = [Operation[one.upper().replace("-", "_")] for one in typed["operations"]] or [Operation.ALL]
    for permission, users in ((Permission.ALLOW, typed["allow"]), (Permission.DENY, typed["deny"])):
        for user in users:
            if ":" not in user:
                raise click.UsageError(f"{user} is not a principal: write User:{user}")
            for operation in operations:
                yield Acl(user, typed["host"] or ANYWHERE, operation, permission)


def _filters(typed: dict[str, Any], *, matching: bool) -> list[Any]:
    """The options as filters; unset ones match everything. `matching`: include prefixed entries that cover a name."""
    from anabranch.protocol.acls import ANY, MATCH, AclFilter, PatternType

    about: list[tuple[int, str | None, int]] = [
        (pattern.resource_type, pattern.name, MATCH if matching else pattern.pattern_type)
        for pattern in _patterns(typed)
    ] or [(ANY, None, PatternType.PREFIXED if typed["prefixed"] else ANY)]
    named = bool(typed["operations"])
    says: list[tuple[str | None, int, int]] = [
        (acl.principal, acl.operation if named else ANY, acl.permission) for acl in _entries(typed)
    ]
    if not says:
        from anabranch.protocol.acls import Operation

        says = [(None, Operation[one.upper().replace("-", "_")], ANY) for one in typed["operations"]]
    return [
        AclFilter(
            resource_type=kind,
            name=name,
            pattern_type=tree,
            principal=principal,
            host=typed["host"],
            operation=operation,
            permission=permission,
        )
        for kind, name, tree in about
        for principal, operation, permission in says or [(None, ANY, ANY)]
    ]


def _line(pattern: ResourcePattern, acl: Acl) -> str:
    row = _row(pattern, acl)
    names = f"{row['name']}*" if row["pattern"] == "prefixed" else row["name"]
    where = "" if acl.host == "*" else f" from {acl.host}"
    verb = "may" if row["permission"] == "allow" else "may not"
    return f"{acl.principal} {verb} {row['operation']} {row['resource']} {names}{where}"


def _row(pattern: ResourcePattern, acl: Acl) -> dict[str, str]:
    return {
        "resource": pattern.resource_type.name.lower().replace("_", "-"),
        "name": pattern.name,
        "pattern": pattern.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower().replace("_", "-"),
        "permission": acl.permission.name.lower(),
    }
