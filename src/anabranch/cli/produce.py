"""`anabranch produce`: sends lines as records."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from anabranch.cli import completion
from anabranch.cli.remote import bootstrap, refusals, security
from anabranch.cli.schemas import line_serializer, parse_serdes, registry_options, schema_options, serializers
from anabranch.protocol.errors import KafkaError
from anabranch.runtime.interruptible import run_interruptible

if TYPE_CHECKING:
    from anabranch import Producer
    from anabranch.clients.producer.producer_record import RecordMetadata
    from anabranch.inspect.record_text import LineRecord

    Parser = Callable[[bytes], LineRecord]

READ_BYTES: Final = 1 << 16
SKIPPED_NAMED_MAX: Final = 10
"""The maximum number of skipped lines that are named."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(
    epilog="""\b
Examples:
  anabranch produce flights --key LH400 'delayed by 12 minutes'
  anabranch produce flights --separator : < flights.txt           LH400:delayed, one record a line
  anabranch produce flights --json < flights.jsonl                {"key": "LH400", "value": {"delay": 12}}
  anabranch consume flights --until-end --json | anabranch produce copies --json
  anabranch produce flights --key LH400 --null                    a tombstone
  anabranch produce flights -s value=avro -r http://127.0.0.1:8081 --value-schema flight.avsc < flights.jsonl
"""
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("values", nargs=-1)
@click.option("--key", help="The key of records without a key.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; may be repeated."
)
@click.option("--partition", type=click.IntRange(0), help="The partition. Default: by the key.")
@click.option("--null", is_flag=True, help="Send one record without a value.")
@click.option(
    "--json", "as_json", is_flag=True, help="Each line is a JSON object: key, value, headers, partition, timestamp."
)
@click.option("--separator", metavar="TEXT", help="The separator of key and value in each line.")
@click.option("--skip-bad", is_flag=True, help="Skip and report invalid lines.")
@click.option(
    "--from-line",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Begin with line N, to continue after an invalid line.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="The required acknowledgements.",
)
@click.option(
    "--compression", type=click.Choice(CODECS), default="none", show_default=True, help="The compression of each batch."
)
@registry_options
@schema_options
@bootstrap
def command(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    null: bool,
    as_json: bool,
    separator: str | None,
    skip_bad: bool,
    from_line: int,
    acks: str,
    compression: str,
    registry: str | None,
    serdes: tuple[str, ...],
    key_schema: str | None,
    value_schema: str | None,
    bootstrap: str,
) -> None:
    """Send the VALUES, or else each line of the standard input, as a record.

    Records with a key keep their order, even if the topic is resized meanwhile. The command ends when all records are
    stored, and prints their offsets. An invalid line, such as an empty one, ends it too: the lines before are stored,
    and --from-line sends the others after a correction. Lines end with LF or CRLF.
    """
    from anabranch.inspect.record_text import LineRecord, parse_json, split_line

    _check_options(as_json=as_json, separator=separator)
    if null:
        _check_null({"VALUES": values, "--json": as_json, "--separator": separator, "--skip-bad": skip_bad})
    shared = tuple(_header(one) for one in headers)
    schemas = {"key": key_schema, "value": value_schema}
    encoders = serializers(registry, topic, parse_serdes(serdes, registry), schemas)
    of_lines = {side: line_serializer(encoder, side) for side, encoder in encoders.items()}
    common_key = _common_key(key, of_lines.get("key", _encode_text))

    def complete(one: LineRecord) -> LineRecord:
        return one._replace(
            key=one.key if one.key is not None else common_key,
            headers=(*shared, *one.headers),
            partition=partition if one.partition is None else one.partition,
        )

    def parse(line: bytes) -> LineRecord:
        if as_json:
            return complete(parse_json(line, encoders))
        one = split_line(line, separator.encode() if separator else None)
        encode_key, encode_value = of_lines.get("key", _encode_text), of_lines.get("value", _encode_text)
        return complete(one._replace(key=encode_key(one.key), value=encode_value(one.value)))

    async def main() -> Stored:
        from anabranch import Producer

        parsed_acks = acks if acks == "all" else int(acks)
        codec = None if compression == "none" else compression
        async with Producer(bootstrap, acks=parsed_acks, compression_type=codec, **security()) as producer:
            stored = Stored(topic, skip_bad=skip_bad)
            if null:
                await stored.send(producer, complete(LineRecord(None)))
            else:
                await stored.send_all(producer, _values(values) if values else _lines(), parse, from_line)
            await producer.flush()
            return stored

    with refusals(bootstrap):
        stored = run_interruptible(main())
    for line in stored.lines():
        click.echo(line)
    stored.judge()


def _check_options(*, as_json: bool, separator: str | None) -> None:
    if as_json and separator:
        raise click.UsageError("--json and --separator are mutually exclusive")


def _check_null(about_lines: Mapping[str, object]) -> None:
    if given := [option for option, typed in about_lines.items() if typed]:
        raise click.UsageError(f"--null sends one record, and reads no lines: leave out {', '.join(given)}")


def _common_key(key: str | None, encode: Callable[[bytes | None], bytes | None]) -> bytes | None:
    try:
        return encode(None if key is None else key.encode())
    except ValueError as error:
        raise click.UsageError(f"--key: {error}") from None


class Stored:
    """Counts and offsets of the sent records."""

    def __init__(self, topic: str, *, skip_bad: bool = False) -> None:
        self._topic = topic
        self._skip_bad = skip_bad
        self._skipped = 0
        self._ends: dict[int, tuple[int, int]] = {}
        self._failed: dict[str, int] = {}
        self._wrong_line = ""

    async def send(self, producer: Producer, record: LineRecord) -> None:
        """Pass a record to the producer. Raises KafkaError if it is refused."""
        future = await producer.send(
            self._topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
        )
        future.add_done_callback(self._on_acknowledged)

    async def send_all(
        self, producer: Producer, lines: AsyncIterator[bytes], parse: Callable[[bytes], LineRecord], from_line: int = 1
    ) -> None:
        """Send one record per line, up to the first invalid line, or skipping invalid lines."""
        number = 0
        async for line in lines:
            number += 1
            if number < from_line:
                continue
            try:
                record = parse(line)
            except ValueError as error:
                if self._skip_bad:
                    self._skip(number, error)
                    continue
                self._stop(number, from_line, error, "skip such lines with --skip-bad, or correct it and ")
                return
            try:
                await self.send(producer, record)
            except (ValueError, KafkaError) as error:
                self._stop(number, from_line, error, "")
                return

    def _skip(self, number: int, error: ValueError) -> None:
        self._skipped += 1
        if self._skipped <= SKIPPED_NAMED_MAX:
            click.echo(f"skipped line {number}: {error}", err=True)

    def _stop(self, number: int, from_line: int, error: Exception, other_way: str) -> None:
        self._wrong_line = f"line {number}: {error}"
        if number > from_line:
            before = f"line {from_line} is" if number == from_line + 1 else f"lines {from_line} to {number - 1} are"
            self._wrong_line += f"; {before} sent: {other_way}continue with --from-line {number}"

    def lines(self) -> Iterator[str]:
        """The partitions and offsets of the records."""
        stored = sum(count for count, _ in self._ends.values())
        yield f"{stored:,} record{'' if stored == 1 else 's'} stored in {self._topic}"
        for partition, (count, last) in sorted(self._ends.items()):
            where = f"up to offset {last:,}" if last >= 0 else "unacknowledged"
            yield f"  partition {partition:>4}: {count:,}, {where}"
        if self._skipped:
            yield f"{self._skipped:,} line{'' if self._skipped == 1 else 's'} skipped"

    def judge(self) -> None:
        """Raise an exception, with one line, if records were not stored or lines were invalid."""
        if self._failed:
            reason, count = max(self._failed.items(), key=lambda one: one[1])
            raise click.ClickException(f"{sum(self._failed.values()):,} records were not stored: {reason} ({count:,})")
        if self._wrong_line:
            raise click.UsageError(self._wrong_line)

    def _on_acknowledged(self, future: asyncio.Future[RecordMetadata]) -> None:
        error = future.exception()
        if error is not None:
            self._failed[str(error)] = self._failed.get(str(error), 0) + 1
            return
        place = future.result()
        count, last = self._ends.get(place.partition, (0, -1))
        self._ends[place.partition] = (count + 1, max(last, place.offset))


def _encode_text(text: bytes | None) -> bytes | None:
    return text


def _header(text: str) -> tuple[str, bytes]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.UsageError(f"--header takes NAME=VALUE, not {text!r}")
    return name, value.encode()


async def _values(values: Iterable[str]) -> AsyncIterator[bytes]:
    for value in values:
        yield value.encode()


async def _lines() -> AsyncIterator[bytes]:
    """The lines of standard input as they arrive, without their LF or CRLF."""
    parts: list[bytes] = []
    read = functools.partial(sys.stdin.buffer.read1, READ_BYTES)  # type: ignore[union-attr]
    while chunk := await asyncio.to_thread(read):  # noqa: TID251  # a file cannot be polled, a terminal takes its time
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts).removesuffix(b"\r")
            parts = [other]
    if last := b"".join(parts):
        yield last
