"""Records as lines of text: the input of `anabranch produce` and the output of `anabranch consume`.

In JSON, bytes are text if they are UTF-8, `{"base64": "..."}` if not, and null if absent. A record that was written in
JSON can be read back unchanged. When reading, any other JSON value is stored as compact JSON text, so `{"value":
{"delay": 3}}` works as expected.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from anabranch.clients.consumer.consumer_record import ConsumerRecord

    Encoders = Mapping[str, Callable[[Any], bytes | None]]
    """"key" or "value" -> the encoder of its JSON values."""

FIELDS: Final = {"key", "value", "headers", "partition", "timestamp"}
PLACE: Final = {"topic", "offset"}
"""The place where a record was read. A line with these fields names the partition of origin, not a target."""
BINARY: Final = "base64"
NO_TIMESTAMP: Final = -1
"""The timestamp of a record without one."""


class LineRecord(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def split_line(line: bytes, separator: bytes | None) -> LineRecord:
    """Split a line at the separator into key and value; without a separator the line is the value.

    ValueError if the separator is not in the line.
    """
    if not separator:
        return LineRecord(line)
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"no separator {separator.decode()!r} in {printable(line)}")
    return LineRecord(value, key)


def parse_json(line: bytes, encoders: Encoders = MappingProxyType({})) -> LineRecord:
    """Parse a JSON object with `key`, `value`, `headers`, `partition` and `timestamp`, each of them optional.

    A record that was read from a topic may be produced to another one unchanged: the partitioner selects its partition
    there. `encoders` have a function for keys and values that are not stored as text. ValueError names the error.
    """
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return parse(record, encoders)


def parse(record: object, encoders: Encoders = MappingProxyType({})) -> LineRecord:
    """Make a record of a JSON value, as in `parse_json`. ValueError names the error."""
    if not isinstance(record, dict):
        printed = printable(json.dumps(record).encode())
        raise ValueError(f'a record is an object such as {{"key": "a", "value": "b"}}, not {printed}')
    if unknown := record.keys() - FIELDS - PLACE:
        raise ValueError(f"the fields of a record are {', '.join(sorted(FIELDS))}, not {', '.join(sorted(unknown))}")
    return LineRecord(
        value=encoders.get("value", _to_bytes)(record.get("value")),
        key=encoders.get("key", _to_bytes)(record.get("key")),
        headers=_headers(record.get("headers", ())),
        partition=None if "offset" in record else _number(record, "partition"),
        timestamp_ms=None if record.get("timestamp") == NO_TIMESTAMP else _number(record, "timestamp"),
    )


def to_json(record: ConsumerRecord, json_fields: Collection[str] = ()) -> str:
    """Format a record as a line for `parse_json`; `json_fields`: whether key and value are JSON text."""
    content = {
        field: json.loads(stored) if field in json_fields and stored is not None else to_value(stored)
        for field, stored in (("key", record.key), ("value", record.value))
    }
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **content,
            "headers": [[name, to_value(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def to_text(record: ConsumerRecord) -> str:
    """Format a record as text: its position, time, key, value and headers."""
    headers = "".join(f"  {name}={printable(value)}" for name, value in record.headers)
    place = f"{record.topic}-{record.partition}@{record.offset}"
    return f"{place}  {time_text(record.timestamp)}  {printable(record.key)}  {printable(record.value)}{headers}"


def time_text(timestamp_ms: int) -> str:
    """A record's time in UTC; `-` if it has none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def printable(content: bytes | None) -> str:
    """Format bytes on one line: text with escapes for unprintable characters."""
    if content is None:
        return "null"
    text = content.decode(errors="backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def to_value(content: bytes | None) -> Any:
    """Bytes as a JSON value."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {BINARY: base64.b64encode(content).decode()}


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {BINARY}:
        try:
            return base64.b64decode(value[BINARY], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise ValueError(f"{value[BINARY]!r} is not base64") from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list | tuple):
        raise ValueError(f'headers are {{"name": "value"}} or [["name", "value"]], not {value!r}')
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f'a header is ["name", "value"], not {pair!r}')
    return tuple((name, _to_bytes(one)) for name, one in pairs)


def _number(record: dict[str, Any], field: str) -> int | None:
    value = record.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{field} must be a number from 0 to 2^63 - 1, not {value!r}")
    return value
