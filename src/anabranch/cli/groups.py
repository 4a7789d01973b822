"""`anabranch groups`: shows a group's members, offsets and closed gates, and resets its offsets.

It lists, describes and deletes groups of all kinds; gates and offset resets apply to groups that commit offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, run, tell, tell_table, with_admin
from anabranch.cli.table import table_lines
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.group_admin import Group
    from anabranch.clients.group_gates import ClosedGate

MEMBERS_NAMED_MAX: Final = 10
KINDS: Final = ("classic", "consumer", "share", "streams")


@click.group(
    cls=CommandGroup,
    name="groups",
    epilog="""\b
Examples:
  anabranch groups list
  anabranch groups list --type share
  anabranch groups describe audit
  anabranch groups gates audit                  closed gates, and what they wait for
  anabranch groups reset audit flights --partition 0 --to 1200 --reset-lineage
  anabranch groups delete audit
""",
)
def command() -> None:
    """Groups of consumers: members, offsets, and the gates that keep keys in order across resizes."""


@command.command(
    name="list",
    epilog=examples("anabranch groups list", "anabranch groups list --type share"),
)
@click.option("--type", "kind", type=click.Choice(KINDS), help="Only groups of this type. Default: all.")
@as_json
@with_admin()
async def list_all(admin: Admin, kind: str | None, as_json: bool) -> None:
    """List all groups with their types and states.

    classic: its members assign partitions. consumer: its coordinator does (KIP-848). share: its members share
    partitions (KIP-932). streams: its coordinator assigns the tasks of a Kafka Streams application (KIP-1071).
    """
    from anabranch.clients.group_admin import list_all_groups

    rows = [
        (
            {"group": one.group_id, "type": one.kind, "protocol": one.protocol_type, "state": one.state},
            [one.group_id, one.kind, one.state],
        )
        for one in await list_all_groups(admin.network)
        if kind in (None, one.kind)
    ]
    tell_table(as_json, ["group", "type", "state"], rows, "no groups")


@command.command(
    epilog=examples(
        "anabranch groups describe audit",
        "anabranch groups describe audit --watch      refresh every second, until Ctrl-C",
    ),
)
@click.argument("group", shell_complete=completion.groups)
@click.option("--watch", is_flag=True, help="Refresh every second.")
@as_json
@with_admin(hints={ErrorCode.GROUP_ID_NOT_FOUND: "`anabranch groups list` shows the groups"})
async def describe(admin: Admin, group: str, watch: bool, as_json: bool) -> None:
    """Show members, partitions, committed offsets and lag.

    The lag of a partition is the number of offsets between the committed offset and the end of the log. Without a
    committed offset, all existing records count. A share group commits nothing: it has a start offset, before which all
    records are finished, and its lag is the number of unfinished records from there on.
    """
    import asyncio

    from anabranch.inspect.group_lag import standing

    while True:
        known = await standing(admin, group)
        tell(as_json, known.row(), known.lines())
        if not watch:
            return
        if not as_json:
            click.echo("")
        await asyncio.sleep(1)


@command.command(
    epilog=examples(
        "anabranch groups gates audit",
        "anabranch groups gates audit --topic flights --watch    until all are open",
    ),
)
@click.argument("group", shell_complete=completion.groups)
@click.option(
    "--topic",
    "only",
    multiple=True,
    shell_complete=completion.topics,
    help="Only this topic; may be repeated. Default: all topics of the group.",
)
@click.option("--watch", is_flag=True, help="Refresh every second, until no gate is closed.")
@as_json
@with_admin(hints={ErrorCode.GROUP_ID_NOT_FOUND: "`anabranch groups list` shows the groups"})
async def gates(admin: Admin, group: str, only: tuple[str, ...], watch: bool, as_json: bool) -> None:
    """Show closed gates and what would open them.

    A gate withholds a split or merged partition until the group has committed the earlier key epochs of its keys. The
    output shows each waiting partition, what it waits for, its owner, and since when. For stock consumers the
    coordinator holds the gates: it assigns such a partition to no member, and reports the reason.
    """
    import asyncio

    from anabranch.clients.clock import time_of_day_clock
    from anabranch.clients.group_admin import SHARE, STREAMS
    from anabranch.clients.group_kinds import describe_any_group
    from anabranch.inspect.closed_gates import closed_gates_of
    from anabranch.inspect.group_lag import withheld_lines, withheld_rows

    clock_ms = time_of_day_clock()
    while True:
        known = await describe_any_group(admin.network, group)
        if known.kind in (SHARE, STREAMS):
            tell(as_json, {"group": group, "type": known.kind}, [f"{group}: a {known.kind} group has no gates"])
            return
        closed = await closed_gates_of(admin, group, only)
        now_ms = clock_ms()
        for gate in closed:
            tell(as_json, gate_row(gate), gate_lines(gate, now_ms=now_ms))
        if known.withheld:
            tell(as_json, {"group": group, "withheld": withheld_rows(known)}, withheld_lines(known))
        if not (closed or known.withheld or as_json):
            click.echo(f"{group}: every gate is open")
        if not ((closed or known.withheld) and watch):
            return
        if not as_json:
            click.echo("")
        await asyncio.sleep(1)


def gate_lines(gate: ClosedGate, *, now_ms: int) -> list[str]:
    """A closed gate as lines: the waiting partition, then what would open it."""
    since = "no records wait yet"
    if gate.waiting_since_ms >= 0:
        since = f"records wait for {max(now_ms - gate.waiting_since_ms, 0) / 1000:,.1f} s"
    owner = gate.owner or "no member"
    head = f"{gate.partition} (generation {gate.generation}, {owner}) stops at {gate.offset:,}: {since}"
    lines = [head]
    for one in gate.blockers:
        reader = f"{one.owner} must" if one.owner else "NO MEMBER reads it; one must"
        todo = f"read and commit {one.remaining:,} more" if one.remaining else "commit its position"
        lines.append(f"    opens when {one.partition} reaches {one.end:,}: {reader} {todo}")
    return lines


def gate_row(gate: ClosedGate) -> Mapping[str, Any]:
    """A closed gate as a JSON row."""
    return {
        "topic": gate.partition.topic,
        "partition": gate.partition.partition,
        "generation": gate.generation,
        "offset": gate.offset,
        "waiting_since": gate.waiting_since_ms,
        "owner": None if gate.owner is None else str(gate.owner),
        "blockers": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "end": one.end,
                "remaining": one.remaining,
                "owner": None if one.owner is None else str(one.owner),
            }
            for one in gate.blockers
        ],
    }


@command.command(
    epilog="""\b
Examples:
  anabranch groups reset audit flights --to earliest
  anabranch groups reset audit flights --to 2h --dry-run                       records of the last two hours
  anabranch groups reset audit flights --to -100                               the last hundred offsets again
  anabranch groups reset audit flights --partition 0 --to 1200 --reset-lineage --dry-run
  anabranch groups reset audit flights --partition 0 --to 1200 --only-named    old records may come after newer ones
  anabranch groups reset fresh flights --to latest --create                    a new group that starts at the end
""",
)
@click.argument("group", shell_complete=completion.groups)
@click.argument("topic", shell_complete=completion.topics)
@click.option("--partition", type=click.IntRange(0), help="Only this partition. Default: all of the topic.")
@click.option(
    "--to",
    "to",
    required=True,
    metavar="earliest|latest|OFFSET|TIME|-N|+N",
    help="The new position of the group. TIME is 2026-11-23T10:00 (UTC unless it says otherwise), or 15m, 2h, 1d ago. "
    "-N and +N count from the committed offset. Offsets stop at the log's ends.",
)
@click.option(
    "--reset-lineage/--only-named",
    "reset_lineage",
    default=None,
    help="Also reset partitions that hold later records of the same keys. Without them, old records follow newer ones.",
)
@click.option("--create", is_flag=True, help="Create the group if it does not exist.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets; change nothing.")
@bootstrap
def reset(
    group: str,
    topic: str,
    partition: int | None,
    to: str,
    reset_lineage: bool | None,
    create: bool,
    dry_run: bool,
    bootstrap: str,
) -> None:
    """Change a group's committed offsets. It must have no members.

    A reset to before a resize in some partitions alone would deliver old records after newer ones of the same key. That
    is refused, unless --reset-lineage resets the partitions with the same keys, too, or --only-named accepts it.
    """
    from anabranch.inspect.offset_reset import parse_target

    try:
        target = parse_target(to, now=datetime.now(UTC))
    except ValueError as error:
        raise click.UsageError(f"--to must be {error}") from None

    async def act(admin: Admin) -> None:
        from anabranch.clients.group_admin import SHARE, commit_each
        from anabranch.inspect.offset_reset import new_offsets

        known = await find_group(admin, group)
        if known is None and not create:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group)
        if known is not None and known.kind == SHARE:
            raise click.UsageError(f"{group} is a share group: use kafka-share-groups.sh --reset-offsets")
        if not dry_run:
            refuse_members(known)
        offsets = await new_offsets(admin, group, topic, partition, target, with_lineage=reset_lineage is not False)
        named = offsets
        if reset_lineage is not False:
            named = await new_offsets(admin, group, topic, partition, target, with_lineage=False)
        if reset_lineage is None:
            refuse_to_leave([one for one in sorted(offsets) if offsets[one] != named.get(one)])
        if isinstance(target, int):
            warn_of_limits(target, {one: after for one, (_, after) in named.items()})
        outcomes = {}
        if not dry_run:
            outcomes = await commit_each(admin.network, group, {one: after for one, (_, after) in offsets.items()})
        click.echo("\n".join(reset_lines(offsets, outcomes)))
        if failed := [code for code in outcomes.values() if code is not ErrorCode.NONE]:
            if len(failed) == len(outcomes):
                refuse_members(await find_group(admin, group))
            raise KafkaError(failed[0], f"{len(failed)} of {len(outcomes)} partitions of {group} were not reset")
        click.echo("nothing was changed" if dry_run else f"{group} continues from there")

    run(
        bootstrap,
        act,
        hints={ErrorCode.GROUP_ID_NOT_FOUND: "`anabranch groups list` shows the groups; --create creates one"},
    )


def warn_of_limits(target: int, offsets: Mapping[TopicPartition, int]) -> None:
    """Print a warning for each partition whose log does not reach to the requested offset."""
    for one, offset in sorted(offsets.items()):
        if offset != target:
            end, side = ("start", "before") if offset > target else ("end", "behind")
            click.echo(f"warning: {target} is {side} the {end} of {one}, {offset}, which is used instead", err=True)


def reset_lines(
    offsets: Mapping[TopicPartition, tuple[int | None, int]], outcomes: Mapping[TopicPartition, ErrorCode]
) -> list[str]:
    """Format a reset as a table: of each partition the old and the new offset, and the error if it was refused."""
    rows = []
    for one, (before, after) in sorted(offsets.items()):
        code = outcomes.get(one, ErrorCode.NONE)
        change = "" if before is None else f"{after - before:+,}"
        refused = code is not ErrorCode.NONE
        rows.append([str(one), before, before if refused else after, code.name if refused else change])
    return table_lines(["partition", "old", "new", "change"], rows)


async def find_group(admin: Admin, group_id: str) -> Group | None:
    """Describe a group of any kind; None if it does not exist."""
    from anabranch.clients.group_kinds import describe_any_group

    try:
        return await describe_any_group(admin.network, group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def refuse_members(group: Group | None) -> None:
    """Raise ClickException if a group has members, with their names: they own its offsets."""
    if group is not None and group.members:
        named = ", ".join(f"{one} ({one.member_id})" for one in group.members[:MEMBERS_NAMED_MAX])
        more = len(group.members) - MEMBERS_NAMED_MAX
        raise click.ClickException(
            f"nothing was reset: {group.group_id} has active members; stop them first: "
            f"{named}{f' and {more} more' if more > 0 else ''}"
        )


def refuse_to_leave(later: Sequence[TopicPartition]) -> None:
    """Raise UsageError if a reset leaves later records of the same keys behind in other partitions."""
    if later:
        raise click.UsageError(
            f"later records of the same keys are in {', '.join(map(str, later))}: write --reset-lineage to read those "
            "again, after the older ones, or --only-named to get older records after newer ones"
        )


@command.command(
    epilog=examples("anabranch groups delete audit        with its offsets"),
)
@click.argument("groups", nargs=-1, required=True, shell_complete=completion.groups)
@with_admin()
async def delete(admin: Admin, groups: tuple[str, ...]) -> None:
    """Delete groups and their committed offsets. They must have no members."""
    from anabranch.clients.group_admin import delete_group

    for group in groups:
        await delete_group(admin.network, group)
        click.echo(f"deleted {group}")
