"""Converts deliveries that any client has logged itself to the audit's input: `anabranch audit --deliveries FILE`.

Each delivered record has a JSON line, written before the record's offset is committed:

    {"key": "42", "sequence": 7, "partition": 3, "offset": 91}

`sequence` numbers the records of a key, from 0, in the order in which their producer sent them; it is part of the
record. Without it, a key is checked by generation and offset. Optional fields are `topic`, `group`, `member` (default:
the file's name), `producer` (if several number the same keys), `generation` and `time_ms`. Acknowledged records of
producers have the same lines (`--sent`); those that were never delivered are lost.

The order of lines is the order of deliveries, also if several members append to one file. Several files are merged by
`time_ms`, which is then required. Pure: lines in, runs of `protocol.audit` and records out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from anabranch.protocol import audit as wire
from anabranch.protocol import audit_mark
from anabranch.protocol.audit import Delivery

TOPIC: Final = "records"
GROUP: Final = "readers"
ONLY_PRODUCER: Final = 1
EVENTS_MAX: Final = 1000
"""Events per run."""
NUMBERS: Final = {
    "sequence": (0, (1 << 62) - 1),
    "partition": (0, (1 << 23) - 1),
    "offset": (0, (1 << 40) - 1),
    "generation": (0, (1 << 31) - 1),
    "time_ms": (0, (1 << 53) - 1),
}
"""The range of each number; offsets in the range that the audit distinguishes."""
NEEDED: Final = ("partition", "offset")
TEXTS: Final = ("topic", "group", "member", "producer")
KNOWN: Final = ("key", *NUMBERS, *TEXTS)


class InvalidLine(ValueError):
    """A line that is no valid delivery; the message has the position and the error."""


class Lines(NamedTuple):
    """The lines of one file."""

    name: str
    """The name of the file, for messages."""
    lines: Iterable[str]
    """Decoded with `surrogateescape`: a line that is not UTF-8 is invalid."""


class Row(NamedTuple):
    """One record of a topic, as the audit's source reads it."""

    key: bytes | None
    value: bytes
    topic: str
    partition: int
    offset: int
    time_ms: int
    mark: bytes


def deliveries(files: Iterable[Lines]) -> Iterator[Delivery]:
    """The deliveries of all files, in order, each numbered among those of its member. Raises InvalidLine."""
    files = list(files)
    merged = [_of_file(one, timed=True if len(files) > 1 else None) for one in files]
    numbers: dict[tuple[int, int], int] = {}
    for one in heapq.merge(*merged, key=lambda delivery: delivery.time_ms) if len(merged) > 1 else merged[0]:
        where = (one.incarnation, wire.bucket_of(one.key_hash))
        number = numbers[where] = numbers.get(where, -1) + 1
        yield replace(one, number=number)


def runs(found: Iterable[Delivery], topic: str) -> Iterator[Row]:
    """Deliveries as records of an audit topic: runs of one member's deliveries, in one bucket of keys."""
    waiting: dict[int, list[Delivery]] = {}
    offset = 0
    for one in found:
        bucket = wire.bucket_of(one.key_hash)
        its = waiting.setdefault(bucket, [])
        if its and (len(its) == EVENTS_MAX or _sender(its[0]) != _sender(one)):
            yield _run(bucket, its, topic, offset)
            its.clear()
            offset += 1
        its.append(one)
    for bucket, its in waiting.items():
        yield _run(bucket, its, topic, offset)
        offset += 1


def stored_records(files: Iterable[Lines]) -> Iterator[Row]:
    """The acknowledged records of producers, as records of the audited topic. Raises InvalidLine."""
    for one in files:
        for sent in _of_file(one, timed=None):
            mark = audit_mark.encode(sent.producer, sent.sequence)
            yield Row(sent.key, b"", sent.topic, sent.partition, sent.offset, sent.time_ms, mark)


def _of_file(file: Lines, *, timed: bool | None) -> Iterator[Delivery]:
    """`timed`: whether the lines have times; None if unknown."""
    for number, line in enumerate(file.lines, 1):
        if not line.strip():
            continue
        try:
            if not _is_unicode(line):
                raise ValueError("not UTF-8")
            given = json.loads(line)
            if not isinstance(given, dict):
                raise ValueError("not a JSON object")
            if timed is None:
                timed = "time_ms" in given
            if timed != ("time_ms" in given):
                raise ValueError("time_ms must be in all lines of all files, or in none")
            yield _delivery(given, file.name)
        except ValueError as error:
            shown = line.strip()[:200].encode(errors="backslashreplace").decode()
            raise InvalidLine(f"{file.name}:{number}: {error}: {shown}") from None


def _is_unicode(text: str) -> bool:
    """Whether a text can be stored: not if it has surrogates, as from `surrogateescape` or an escape in JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _delivery(given: Mapping[str, Any], name: str) -> Delivery:
    """Raises ValueError."""
    if unknown := sorted(given.keys() - set(KNOWN)):
        raise ValueError(f"{', '.join(unknown)} is unknown; the fields are {', '.join(KNOWN)}")
    numbers = {field: _number(given, field) for field in NUMBERS}
    for field in TEXTS:
        text = given.get(field, "")
        if not isinstance(text, str) or not _is_unicode(text):
            raise ValueError(f"{field} is a string, in UTF-8")
    key = given.get("key")
    if not (key is None or isinstance(key, str)):
        raise ValueError("key is a string or null")
    raw = None if key is None else key.encode(errors="surrogatepass")
    group, member = given.get("group", GROUP), given.get("member", name)
    partition, sequence = numbers["partition"], numbers["sequence"]
    assert partition is not None and numbers["offset"] is not None, "they are required"
    numbered = sequence is not None and raw is not None
    return Delivery(
        generation=wire.NO_GENERATION if numbers["generation"] is None else numbers["generation"],
        partition=partition,
        offset=numbers["offset"],
        producer=_identity(given["producer"]) if numbered and "producer" in given else ONLY_PRODUCER * numbered,
        sequence=sequence if numbered and sequence is not None else audit_mark.NO_SEQUENCE,
        fingerprint=wire.fingerprint(b""),
        time_ms=numbers["time_ms"] or 0,
        incarnation=_identity(json.dumps([group, member])),
        group=group,
        member=member,
        topic=given.get("topic", TOPIC),
        key=raw,
        key_hash=wire.key_hash(raw, partition),
    )


def _number(given: Mapping[str, Any], field: str) -> int | None:
    if field not in given:
        if field in NEEDED:
            raise ValueError(f"{field} is missing")
        return None
    number, (least, most) = given[field], NUMBERS[field]
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"{field} is a whole number from {least} to {most}")
    return number


def _identity(text: str) -> int:
    """A number for a producer's name; never the number of an unnumbered producer."""
    return int.from_bytes(wire.digest(text.encode(errors="surrogatepass"))[:8], "little") or ONLY_PRODUCER


def _sender(one: Delivery) -> tuple[str, str, str]:
    return one.group, one.member, one.topic


def _run(bucket: int, its: list[Delivery], topic: str, offset: int) -> Row:
    time_ms = max(one.time_ms for one in its)
    return Row(wire.bucket_key(bucket), wire.encode_events(its), topic, 0, offset, time_ms, audit_mark.NO_MARK)
