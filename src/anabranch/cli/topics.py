"""`anabranch topics`: creates, shows, configures, resizes and deletes topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, run, tell, tell_none, tell_table, timeout, with_admin
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.metadata import Topic


@click.group(
    cls=CommandGroup,
    name="topics",
    epilog="""\b
Examples:
  anabranch topics create flights --partitions 4 --replicas 3 --config min.insync.replicas=2
  anabranch topics list
  anabranch topics describe flights              leaders, ISRs, generations
  anabranch topics config flights --config retention.ms=60000
  anabranch topics alter flights --partitions 8  split; keys move, and keep their order
  anabranch topics alter flights --partitions 5  merge partitions
  anabranch topics lineage flights               the tree of splits and merges
  anabranch topics drain flights                 retiring partitions that groups still have to read
  anabranch topics delete flights
""",
)
def command() -> None:
    """Create, list, describe, resize and delete topics."""


@command.command(
    epilog=examples(
        "anabranch topics create flights --partitions 4",
        "anabranch topics create flights --replicas 3 --config min.insync.replicas=2 --config retention.ms=60000",
    ),
)
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="The partition count. Default: the broker's num.partitions.")
@click.option(
    "--replication-factor",  # as in Kafka's own tools
    "--replicas",
    "replicas",
    type=click.IntRange(1),
    help="The replication factor. Default: the broker's default.replication.factor.",
)
@click.option(
    "--config",
    "--set",
    "config",
    multiple=True,
    metavar="NAME=VALUE",
    help="A topic property; may be repeated.",
    shell_complete=completion.topic_properties,
)
@click.option("--if-not-exists", is_flag=True, help="Exit with 0 if the topic exists, without changing it.")
@bootstrap
@timeout
def create(
    name: str,
    partitions: int | None,
    replicas: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    timeout_s: float,
) -> None:
    """Create a topic."""
    from anabranch.broker.config.config_def import ConfigError
    from anabranch.broker.config.properties_file import parse_properties

    try:
        configs = parse_properties(config)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None

    async def act(admin: Admin) -> None:
        from anabranch import NewTopic

        topic = NewTopic(name=name, partitions=partitions or -1, replication_factor=replicas or -1, configs=configs)
        try:
            await admin.create_topics([topic])
        except KafkaError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            click.echo(f"{name} exists")
        else:
            click.echo(f"created {name}")

    too_many = "write --replicas with at most the number of live brokers"
    run(bootstrap, act, timeout_s, hints={ErrorCode.INVALID_REPLICATION_FACTOR: too_many})


@command.command(
    name="list",
    epilog=examples("anabranch topics list --internal        __consumer_offsets and __transaction_state too"),
)
@click.option("--internal", is_flag=True, help="Include internal topics.")
@as_json
@with_admin()
async def list_topics(admin: Admin, internal: bool, as_json: bool) -> None:
    """List the names of all topics."""
    names = await admin.list_topics(include_internal=internal)
    tell_table(as_json, ["topic"], [({"name": name}, [name]) for name in names], "no topics")


@command.command(
    epilog="""\b
Examples:
  anabranch topics describe
  anabranch topics describe flights flights-audit
  anabranch topics describe --json | jq .partitions
""",
)
@click.argument("names", nargs=-1, shell_complete=completion.topics)
@as_json
@with_admin()
async def describe(admin: Admin, names: tuple[str, ...], as_json: bool) -> None:
    """Show partitions, leaders, ISRs and cuts.

    A cut is where a resize ended a key epoch of keys in a partition's log. All topics if none is named.
    """
    chosen = names or await admin.list_topics()
    for topic in (await admin.describe_topics(chosen)).values():
        tell(as_json, topic_row(topic), describe_lines(topic))


@command.command(
    epilog="""\b
Examples:
  anabranch topics config flights
  anabranch topics config flights --config retention.ms=60000 --unset min.insync.replicas
  anabranch topics config flights --all            all properties with their documentation
""",
)
@click.argument("name", shell_complete=completion.topics)
@click.option(
    "--config",
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a property; may be repeated.",
    shell_complete=completion.topic_properties,
)
@click.option(
    "--unset",
    multiple=True,
    metavar="NAME",
    help="Return a property to its default; may be repeated.",
    shell_complete=completion.topic_property_names,
)
@click.option("--all", "everything", is_flag=True, help="Also show defaults and the documentation of properties.")
@as_json
@bootstrap
def config(
    name: str, changes: tuple[str, ...], unset: tuple[str, ...], everything: bool, as_json: bool, bootstrap: str
) -> None:
    """Show or change the settings of a topic.

    Brokers apply a change while they run. The settings after the change are shown.
    """
    from anabranch.broker.config.config_def import ConfigError
    from anabranch.broker.config.properties_file import parse_properties

    try:
        properties = parse_properties(changes)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None

    async def act(admin: Admin) -> None:
        if properties or unset:
            await admin.alter_configs(name, changes=properties, unset=unset)
        entries = (await admin.describe_configs(name)).values()
        if not everything and all(one.source != TOPIC_SOURCE for one in entries):
            tell_none(as_json, f"{name} has no settings of its own; --all shows the defaults")
        for entry in entries:
            source = SOURCES[entry.source]
            line = f"{entry.name}={entry.value}"
            if everything:
                line = f"{line}  ({source}) {entry.documentation}".rstrip()
            elif entry.source != TOPIC_SOURCE:
                continue
            tell(as_json, {"topic": name, "name": entry.name, "value": entry.value, "source": source}, [line])

    run(bootstrap, act)


TOPIC_SOURCE = 1
SOURCES = {1: "topic", 2: "this broker", 3: "all brokers", 4: "start of the broker", 5: "default"}


@command.command(
    epilog="""\b
Examples:
  anabranch topics alter flights --partitions 8 --dry-run    show moved keys and gates
  anabranch topics alter flights --partitions 8              split; keys move, and keep their order
  anabranch topics alter flights --partitions 5              merge partitions
""",
)
@click.argument("name", shell_complete=completion.topics)
@click.option(
    "--partitions",
    required=True,
    type=click.IntRange(1),
    help="The new partition count: a higher one splits, a lower one merges.",
)
@click.option("--dry-run", is_flag=True, help="Validate the resize and show its plan; change nothing.")
@bootstrap
@timeout
def alter(name: str, partitions: int, dry_run: bool, bootstrap: str, timeout_s: float) -> None:
    """Split a topic, or merge its partitions.

    Keys keep their order. The command shows the plan, carries it out, and waits until all brokers have the new
    metadata.
    """

    async def act(admin: Admin) -> None:
        from anabranch.clients import stock_groups as stock_readers
        from anabranch.resize import stock_groups, stock_producers
        from anabranch.resize.plan import plan_lines
        from anabranch.resize.streams_groups import streams_lines

        topic = await admin.describe_topic(name)
        for line in plan_lines(topic, partitions):
            click.echo(line)
        names = {*stock_producers.PROPERTIES, *stock_readers.PROPERTIES}
        configs = await admin.describe_configs(name, names=sorted(names))
        for line in (
            *stock_producers.stock_lines(topic, partitions, configs),
            *await stock_groups.plan(admin, topic, partitions, configs),
            *await streams_lines(admin, name),
        ):
            click.echo(line)
        await admin.create_partitions(name, partitions, allow_shrink=True, validate_only=dry_run)
        click.echo("nothing was changed" if dry_run else f"{name} has {partitions} partitions")

    too_few = "new partitions need as many replicas as the topic has: start the stopped brokers, and try again"
    run(bootstrap, act, timeout_s, hints={ErrorCode.INVALID_REPLICATION_FACTOR: too_few})


@command.command(
    epilog="""\b
Examples:
  anabranch topics lineage flights
  anabranch topics lineage flights --partition 4    only partitions that ever shared keys with partition 4
  anabranch topics lineage flights --json           each key epoch with its end and parents
""",
)
@click.argument("name", shell_complete=completion.topics)
@click.option("--partition", type=click.IntRange(0), help="Draw only partitions that ever shared keys with this one.")
@as_json
@with_admin()
async def lineage(admin: Admin, name: str, partition: int | None, as_json: bool) -> None:
    """Draw how a topic was split and merged.

    Below the drawing, the offset of each cut is listed.
    """
    from anabranch.clients.group_gates import key_epoch_ends
    from anabranch.resize.plan import lineage_lines, lineage_rows

    topic = await admin.describe_topic(name)
    admin.network.follow(name)
    await admin.network.refresh()
    ends = await key_epoch_ends(admin.network, topic)
    if as_json:
        for row in lineage_rows(topic, ends, partition):
            tell(as_json, row, [])
        return
    for line in lineage_lines(topic, ends, partition):
        click.echo(line)


@command.command(
    epilog="""\b
Examples:
  anabranch topics drain flights
  anabranch topics drain flights --delete-drained            delete records that all groups have read now
""",
)
@click.argument("name", shell_complete=completion.topics)
@click.option("--delete-drained", is_flag=True, help="Delete records of merged partitions that every group has read.")
@click.option(
    "--force", is_flag=True, help="With --delete-drained: also records that groups have not read; they lose them."
)
@as_json
@bootstrap
def drain(name: str, delete_drained: bool, force: bool, as_json: bool, bootstrap: str) -> None:
    """Show unread records of draining partitions.

    Per draining partition and group; the controller removes an empty one.
    """
    if force and not delete_drained:
        raise click.UsageError("--force needs --delete-drained")

    async def act(admin: Admin) -> None:
        from anabranch.inspect.draining import delete_read, drain_lines, draining

        states = await draining(admin, name)
        for one in states if as_json else ():
            row = {
                "topic": name,
                "partition": one.partition.partition,
                "end": one.end,
                "committed": dict(one.committed),
            }
            tell(as_json, row, [])
        for line in () if as_json else drain_lines(name, states):
            click.echo(line)
        if delete_drained:
            for line in await delete_read(admin, name, states, force=force):
                click.echo(line)

    run(bootstrap, act)


@command.command(
    epilog=examples("anabranch topics delete flights flights-audit"),
)
@click.argument("names", nargs=-1, required=True, shell_complete=completion.topics)
@bootstrap
@timeout
def delete(names: tuple[str, ...], bootstrap: str, timeout_s: float) -> None:
    """Delete topics and their records."""

    async def act(admin: Admin) -> None:
        waiting = await admin.delete_topics(list(names))
        click.echo(f"deleted {', '.join(names)}")
        for reason in waiting.values():
            click.echo(reason)

    run(bootstrap, act, timeout_s)


def describe_lines(topic: Topic) -> list[str]:
    """Format a topic."""
    head = f"{topic.name}: {len(topic.live)} partitions"
    if topic.lineage is not None:
        steps = ", ".join(f"{count} (generation {generation})" for generation, count in topic.lineage.history)
        head += f", ordered; history: {steps}"
    lines = [head]
    for index, partition in sorted(topic.partitions.items()):
        isr, replicas = (",".join(map(str, ids)) for ids in (partition.isr, partition.replicas))
        led = f"leader {partition.leader}  epoch {partition.leader_epoch}"
        drains = "" if index in topic.live else "  drains: no new records"
        lines.append(f"  {index:>4}  {led}  isr {isr} of {replicas}{drains}")
    return lines


def topic_row(topic: Topic) -> Mapping[str, Any]:
    """A topic as a JSON row."""
    history = () if topic.lineage is None else topic.lineage.history
    return {
        "name": topic.name,
        "generation": topic.generation,
        "history": [{"generation": generation, "partitions": count} for generation, count in history],
        "partitions": [
            {
                "partition": index,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "drains": index not in topic.live,
            }
            for index, one in sorted(topic.partitions.items())
        ],
    }
