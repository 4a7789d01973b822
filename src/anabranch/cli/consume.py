"""`anabranch consume`: prints records as lines."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from anabranch.cli import completion
from anabranch.cli.positions import EARLIEST, LATEST, parse_position
from anabranch.cli.remote import bootstrap, refusals, security
from anabranch.cli.schemas import deserializer, parse_serdes, registry_options
from anabranch.runtime.interruptible import run_interruptible

if TYPE_CHECKING:
    from anabranch import Consumer, ConsumerRecord, TopicPartition

    Ends = Mapping[TopicPartition, int]

NO_SERDES: Final[Mapping[str, str]] = MappingProxyType({})
LOOK_MS: Final = 200
"""The maximum wait of one poll, after which the command checks whether it is done."""

Start = int | datetime | None
"""An offset, a time, or None for the group's or the log's beginning."""


@click.command(
    epilog="""\b
Examples:
  anabranch consume flights                              all records, then new ones
  anabranch consume flights --from latest --count 10     the next ten records
  anabranch consume flights --from 15m --until-end       records of the last 15 minutes
  anabranch consume flights --from 2026-11-23T10:00 --partition 2
  anabranch consume flights --group audit --json         as a member of a group, with commits
  anabranch consume flights --values --until-end > values.txt
  anabranch consume flights -f '%t-%p@%o %k %s\\n'         with kcat's format tokens
  anabranch consume flights -s value=avro -r http://127.0.0.1:8081
"""
)
@click.argument("topics", nargs=-1, required=True, shell_complete=completion.topics)
@click.option(
    "--group",
    help="Read as a member of this group, from its committed offsets, and commit.",
    shell_complete=completion.groups,
)
@click.option(
    "--from",
    "start",
    default=EARLIEST,
    show_default=True,
    metavar="earliest|latest|OFFSET|TIME",
    help="TIME is 2026-11-23T10:00 (UTC by default), or 15m, 2h, 1d ago. A group starts at its committed offsets.",
)
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option("--count", type=click.IntRange(1), help="End after this many records.")
@click.option("--until-end", is_flag=True, help="End at the present end of the topic.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), help="End after this many seconds without records.")
@click.option("--committed", is_flag=True, help="Skip records of open and aborted transactions.")
@click.option(
    "--json", "style", flag_value="json", help="One JSON object per line, in the format of `anabranch produce --json`."
)
@click.option(
    "--values", "style", flag_value="values", help="Only the values, byte for byte, each followed by a newline."
)
@click.option(
    "--format",
    "-f",
    "template",
    metavar="TEMPLATE",
    help="As kcat: %t topic, %p partition, %o offset, %T time in ms, %k key, %s value, %h headers; %K, %S and %R (4 "
    "bytes) their lengths; \\n, \\t.",
)
@registry_options
@bootstrap
def command(
    topics: tuple[str, ...],
    group: str | None,
    start: str,
    partitions: tuple[int, ...],
    count: int | None,
    until_end: bool,
    timeout_s: float | None,
    committed: bool,
    style: str | None,
    template: str | None,
    registry: str | None,
    serdes: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Print the records of TOPICS, as they come, until Ctrl-C.

    Each key's records are in order, across splits and merges too. Single partitions, an offset or a time have no order
    across resizes: a key's earlier records may be in another partition.
    """
    begin = parse_start(start, now=datetime.now(UTC))
    chosen = bool(partitions) or begin is not None
    if group is not None and chosen:
        raise click.UsageError(
            "a group reads all partitions from its committed offsets: `anabranch groups reset` changes them"
        )

    write = writer(style, template, registry=registry, serdes=parse_serdes(serdes, registry))

    async def main() -> None:
        from anabranch import Consumer

        consumer = Consumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset=LATEST if start == LATEST else EARLIEST,
            isolation_level="read_committed" if committed else "read_uncommitted",
            ordered_delivery=not chosen,
            **security(),
        )
        async with consumer:
            for topic in topics:
                if not consumer.partitions_of(topic):
                    if until_end:
                        raise click.ClickException(
                            f"there is no topic {topic}: `anabranch topics list` shows the topics"
                        )
                    click.echo(f"there is no topic {topic} yet; waiting for it", err=True)
            if chosen:
                await place(consumer, begin, partitions)
            ends = functools.partial(_ends, consumer, partitions) if until_end else None
            await show(consumer, write, count=count, ends=ends, timeout_s=timeout_s)

    with refusals(bootstrap):
        try:
            run_interruptible(main())
        except BrokenPipeError:
            sys.stderr.close()  # the reader of the output has exited; suppress Python's error message, too


def writer(
    style: str | None, template: str | None, *, registry: str | None = None, serdes: Mapping[str, str] = NO_SERDES
) -> Callable[[ConsumerRecord], None]:
    """Choose how records are printed. Raises UsageError for an unknown token, or two ways at once."""
    if not serdes:
        return _plain_writer(style, template)
    write = functools.partial(_write_json, json_fields=serdes.keys()) if style == "json" else None
    write_decoded, decode = write or _plain_writer(style, template), deserializer(registry, serdes)
    return lambda record: write_decoded(decode(record))


def _plain_writer(style: str | None, template: str | None) -> Callable[[ConsumerRecord], None]:
    if template is None:
        return WRITERS[style]
    if style is not None:
        raise click.UsageError(f"write --{style} or --format, not both")
    from anabranch.inspect.record_format import compile_format

    try:
        format_record = compile_format(template)
    except ValueError as error:
        raise click.UsageError(f"--format: {error}") from None

    def write(record: ConsumerRecord) -> None:
        sys.stdout.buffer.write(format_record(record))

    return write


def parse_start(text: str, *, now: datetime) -> Start:
    """Parse `--from`; None for the two ends. Raises UsageError."""
    position = parse_position(text, option="--from", now=now)
    return None if isinstance(position, str) else position


async def place(consumer: Consumer, start: Start, partitions: tuple[int, ...]) -> None:
    """Seek to an offset or a time, optionally in some partitions only, and at most to the end.

    Raises UsageError for an unknown partition.
    """
    there = consumer.assignment()
    if missing := set(partitions) - {one.partition for one in there}:
        raise click.UsageError(f"there is no partition {min(missing)}: there are {len(there)}")
    left = [one for one in there if partitions and one.partition not in partitions]
    consumer.pause(*left)
    read = there.difference(left)
    if isinstance(start, datetime):
        timestamp_ms = max(int(start.timestamp() * 1000), 0)
        found = await consumer.offsets_for_times(dict.fromkeys(read, timestamp_ms))
        ends = await consumer.end_offsets(read)
        for one in read:
            at = found[one]
            consumer.seek(one, ends[one] if at is None else at.offset)
    elif start is not None:
        ends = await consumer.end_offsets(read)
        for one in read:
            consumer.seek(one, min(start, ends[one]))  # beyond the end it would be reset to the beginning


async def show(
    consumer: Consumer,
    write: Callable[[ConsumerRecord], None],
    *,
    count: int | None,
    ends: Callable[[], Awaitable[Ends]] | None,
    timeout_s: float | None,
) -> None:
    """Print records until there were `count`, the `ends` are reached, or none came for `timeout_s`."""
    loop = asyncio.get_running_loop()
    left, last_s = count, loop.time()
    goal: Ends | None = None
    while left != 0:
        if ends is not None and consumer.assignment():  # a group member must poll to get partitions
            goal, ends = await ends(), None
        if goal is not None and _has_passed(consumer, goal):
            return
        found = await consumer.getmany(timeout_ms=LOOK_MS, max_records=left if ends is None else 0)
        for record in (record for records in found.values() for record in records):
            write(record)
        if found:
            sys.stdout.flush()
            last_s = loop.time()
            left = None if left is None else left - sum(map(len, found.values()))
        elif timeout_s is not None and loop.time() - last_s >= timeout_s:
            return


async def _ends(consumer: Consumer, partitions: tuple[int, ...]) -> Ends:
    """The current end offset of each partition that has records to read. A partition that is removed has none."""
    read = [one for one in consumer.assignment() if not partitions or one.partition in partitions]
    ranges = await asyncio.gather(*(_range(consumer, one) for one in read))
    return {one: end for one, (start, end) in zip(read, ranges, strict=True) if end > start}


async def _range(consumer: Consumer, one: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition, and its end offset; the same if it is removed."""
    from anabranch.protocol.errors import ErrorCode, KafkaError

    try:
        return (await consumer.beginning_offsets([one]))[one], (await consumer.end_offsets([one]))[one]
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return 0, 0


def _has_passed(consumer: Consumer, ends: Ends) -> bool:
    there = consumer.assignment()
    return all(one not in there or consumer.position(one) >= end for one, end in ends.items())


def _write_text(record: ConsumerRecord) -> None:
    from anabranch.inspect.record_text import to_text

    click.echo(to_text(record))


def _write_json(record: ConsumerRecord, json_fields: Collection[str] = ()) -> None:
    from anabranch.inspect.record_text import to_json

    click.echo(to_json(record, json_fields))


def _write_value(record: ConsumerRecord) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


WRITERS: Final[Mapping[str | None, Callable[[ConsumerRecord], None]]] = {
    None: _write_text,
    "json": _write_json,
    "values": _write_value,
}
