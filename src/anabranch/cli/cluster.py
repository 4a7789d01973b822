"""`anabranch cluster`: shows brokers and their replicas, elects leaders, moves partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, run, tell, timeout, with_admin
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.host_port import format_host_port
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin

NO_LEADER = -1


@click.group(
    cls=CommandGroup,
    name="cluster",
    epilog="""\b
Examples:
  anabranch cluster describe
  anabranch cluster elect                              elect preferred leaders
  anabranch cluster move flights 0 --to 2,3            partition 0, led by broker 2
  anabranch cluster moves                              current reassignments
""",
)
def command() -> None:
    """Show brokers, elect leaders, move partitions."""


@command.command(
    epilog=examples("anabranch cluster describe", "anabranch cluster describe --json | jq .brokers"),
)
@as_json
@with_admin()
async def describe(admin: Admin, as_json: bool) -> None:
    """Show brokers, their replicas and leaderships.

    A replica that is not in sync does not delay acknowledgements, and may not become leader.
    """
    cluster = await admin.describe_cluster()
    topics = await admin.describe_topics(await admin.list_topics(include_internal=True))
    partitions = [one for topic in topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    holds = Counter(broker for one in partitions for broker in one.replicas)
    late = Counter(broker for one in partitions for broker in set(one.replicas) - set(one.isr))
    brokers = [
        {
            "broker": one.node_id,
            "host": one.host,
            "port": one.port,
            "rack": one.rack,
            "leads": leads[one.node_id],
            "replicas": holds[one.node_id],
            "out_of_sync": late[one.node_id],
        }
        for one in cluster.brokers
    ]
    dead = sorted(holds.keys() - {one.node_id for one in cluster.brokers})
    row = {
        "cluster": cluster.cluster_id,
        "controller": cluster.controller_id,
        "partitions": len(partitions),
        "without_leader": leads[NO_LEADER],
        "brokers": brokers,
        "dead": dead,
    }
    lines = [f"cluster {cluster.cluster_id}, controller {cluster.controller_id}: {len(partitions):,} partitions"]
    for one in brokers:
        rack = f"  rack {one['rack']}" if one["rack"] else ""
        behind = f", {one['out_of_sync']:,} out of sync" if one["out_of_sync"] else ""
        place = f"  broker {one['broker']} at {format_host_port(str(one['host']), str(one['port']))}{rack}"
        lines.append(f"{place}: leads {one['leads']:,} of {one['replicas']:,}{behind}")
    lines += [f"  broker {one} is down, with {holds[one]:,}, {late[one]:,} out of sync" for one in dead]
    if leads[NO_LEADER]:
        lines.append(f"  {leads[NO_LEADER]:,} partitions have no leader")
    tell(as_json, row, lines)


@command.command(
    epilog="""\b
Examples:
  anabranch cluster elect
  anabranch cluster elect flights --partition 3
  anabranch cluster elect flights --partition 3 --unclean     acknowledged records may be lost
""",
)
@click.argument("topic", required=False, shell_complete=completion.topics)
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option(
    "--unclean", is_flag=True, help="Elect a replica that is not in sync, if no other is alive: records are lost."
)
@bootstrap
@timeout
def elect(topic: str | None, partitions: tuple[int, ...], unclean: bool, bootstrap: str, timeout_s: float) -> None:
    """Elect preferred leaders.

    A partition's preferred leader is its first replica. Without TOPIC, all partitions.
    """
    if partitions and topic is None:
        raise click.UsageError("--partition needs a TOPIC")

    async def act(admin: Admin) -> None:
        selected = None
        if topic is not None:
            there = (await admin.describe_topic(topic)).partitions
            selected = [TopicPartition(topic, one) for one in partitions or sorted(there)]
        _tell_outcomes(await admin.elect_leaders(selected, unclean=unclean), "elected")

    run(bootstrap, act, timeout_s)


@command.command(
    epilog=examples("anabranch cluster move flights 0 --to 2,3,1", "anabranch cluster move flights 0 --cancel"),
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", type=click.IntRange(0))
@click.option("--to", metavar="ID[,ID...]", help="The new replicas, the preferred leader first.")
@click.option("--cancel", is_flag=True, help="Cancel a move.")
@bootstrap
@timeout
def move(topic: str, partition: int, to: str | None, cancel: bool, bootstrap: str, timeout_s: float) -> None:
    """Begin to move a partition.

    The new replicas copy it while it is in use; `anabranch cluster moves` shows what is left.
    """
    if (to is None) != cancel:
        raise click.UsageError("write --to ID[,ID...] or --cancel")
    try:
        replicas = None if to is None else [int(one) for one in to.split(",")]
    except ValueError:
        raise click.UsageError(f"--to takes ids of brokers, such as 2,3,1, not {to!r}") from None

    async def act(admin: Admin) -> None:
        moves = {TopicPartition(topic, partition): replicas}
        outcomes = await admin.alter_partition_reassignments(moves)
        _tell_outcomes(outcomes, "called off" if cancel else f"moves to {to}")

    run(bootstrap, act, timeout_s)


@command.command(
    epilog=examples("anabranch cluster moves", "anabranch cluster moves --watch        until all are done"),
)
@click.option("--watch", is_flag=True, help="Refresh every second, until all moves are done.")
@as_json
@with_admin()
async def moves(admin: Admin, watch: bool, as_json: bool) -> None:
    """List partitions that are being moved."""
    import asyncio

    while True:
        under_way = await admin.list_partition_reassignments()
        for partition, one in sorted(under_way.items()):
            row = {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(one.replicas),
                "adding": list(one.adding),
                "removing": list(one.removing),
            }
            line = f"{partition}: to {_ids(one.adding)}, away from {_ids(one.removing)}, now on {_ids(one.replicas)}"
            tell(as_json, row, [line])
        if not (under_way or as_json):
            click.echo("no moves in progress")
        if not (under_way and watch):
            return
        await asyncio.sleep(1)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "-"


def _tell_outcomes(outcomes: Mapping[TopicPartition, KafkaError | None], done: str) -> None:
    """Print the outcome for each partition; raises the errors as one, except if nothing to do."""
    refused = []
    for partition, error in sorted(outcomes.items()):
        if error is None:
            click.echo(f"{partition}: {done}")
        elif error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            refused.append(f"{partition}: {error}")
    if refused:
        raise click.ClickException("; ".join(refused))
    if not any(error is None for error in outcomes.values()):
        click.echo("nothing to do")
