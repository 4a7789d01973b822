"""Formats frames, messages and batches as trees for display.

A tree shows every field and the records of batches. Request handling does not use this module.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.connection import decode_request, decode_response
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.records.batch import check_crc, iter_batches
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.control import read_control
from anabranch.protocol.records.record import iter_records
from anabranch.protocol.registry import APIS, Api
from anabranch.protocol.varint import Buffer
from anabranch.protocol.wire import ZERO_UUID, Kind, WireField, fields_of

if TYPE_CHECKING:
    from anabranch.protocol.records.batch import BatchHeader

SHOWN_ELEMENTS: Final = 3
SHOWN_BYTES: Final = 24
SHOWN_RECORDS: Final = 20
EVERY_VERSION: Final = {api.key: (0, api.last_version) for api in APIS}


def describe_request(frame: bytes) -> str:
    """Format a request frame without its length as a tree. Raises `DecodeError`."""
    return request_tree(decode_request(strip_length(frame), EVERY_VERSION))


def describe_response(frame: bytes, api: Api, version: int) -> str:
    """Format a response frame without its length as a tree, for an API and version. Raises `DecodeError`."""
    frame = strip_length(frame)
    if len(frame) < 4:
        raise DecodeError("a response without a correlation id", buffer=frame)
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    head = f"{api.name} v{version} response, correlation id {correlation_id}"
    return "\n".join([head, *_tree(decode_response(frame, api, version), version, 1)])


def strip_length(frame: bytes) -> bytes:
    """Return the frame alone, if it was captured together with its four length bytes."""
    return frame[4:] if len(frame) >= 4 and int.from_bytes(frame[:4], "big") == len(frame) - 4 else frame


def request_tree(request: DecodedRequest) -> str:
    """Format a request, field by field."""
    head = (
        f"{request.api.name} v{request.version} request, correlation id {request.correlation_id}, "
        f"client id {_text(request.client_id)}"
    )
    if request.body is None:
        return f"{head}\n  of a version that is not known here: answered with UNSUPPORTED_VERSION"
    return "\n".join([head, *_tree(request.body, request.version, 1)])


def batches_line(records: Buffer) -> str:
    """Summarize record batches: `2 batches, offsets 5..9, 5 records, 312 bytes`."""
    try:
        headers = [header for _, header in iter_batches(records)]
    except DecodeError:
        return f"{len(records)} bytes that are not batches"
    if not headers:
        return f"{len(records)} bytes" + (", less than a batch" if len(records) else "")
    count = _count(sum(header.record_count for header in headers), "record")
    offsets = f"offsets {headers[0].base_offset}..{headers[-1].last_offset}"
    return f"{_count(len(headers), 'batch')}, {offsets}, {count}, {len(records)} bytes"


def batches_tree(records: Buffer) -> Iterator[str]:
    """Format every batch with its header fields, its checksum's result and its first records."""
    try:
        for position, header in iter_batches(records):
            crc = "crc ok" if check_crc(records, position, header) else "CRC WRONG"
            yield f"batch {header.base_offset}..{header.last_offset}: {', '.join([*_header_parts(header), crc])}"
            try:
                yield from _records(records, position, header.is_control)
            except DecodeError as error:
                yield f"  its records cannot be read: {error}"
    except DecodeError as error:
        yield f"not a batch: {error}"


def _header_parts(header: BatchHeader) -> Iterator[str]:
    known = header.codec in {codec.value for codec in Compression}
    yield _count(header.record_count, "record")
    yield f"leader epoch {header.partition_leader_epoch}"
    yield f"compression {Compression(header.codec).name.lower() if known else header.codec}"
    if header.has_producer_id:
        yield f"producer {header.producer_id} epoch {header.producer_epoch} from sequence {header.base_sequence}"
    if header.is_transactional:
        yield "transactional"
    if header.is_control:
        yield "control"
    if header.is_log_append_time:
        yield "log append time"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else 'batches' if noun == 'batch' else noun + 's'}"


def _records(records: Buffer, position: int, control: bool) -> Iterator[str]:
    if control:
        marker = read_control(records, position)
        yield f"  {marker.type.name}, coordinator epoch {marker.coordinator_epoch}"
        return
    for shown, record in enumerate(iter_records(records, position)):
        if shown == SHOWN_RECORDS:
            yield "  ..."
            return
        headers = "".join(f" {key}={_bytes(value)}" for key, value in record.headers)
        yield f"  {record.offset} at {record.timestamp_ms}: {_bytes(record.key)} -> {_bytes(record.value)}{headers}"


def _tree(message: Any, version: int, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for field in fields_of(type(message)):
        if not field.exists(version):
            continue
        value = getattr(message, field.name)
        if field.struct is None or value is None:
            yield f"{indent}{field.name}: {_value(field, value)}"
            if field.kind is Kind.RECORDS and value:
                yield from (f"{indent}  {line}" for line in batches_tree(value))
        elif not field.is_array:
            yield f"{indent}{field.name}:"
            yield from _tree(value, version, depth + 1)
        elif not value:
            yield f"{indent}{field.name}: none"
        else:
            for index, element in enumerate(value):
                yield f"{indent}{field.name}[{index}]:"
                yield from _tree(element, version, depth + 1)


def _value(field: WireField, value: Any) -> str:
    if value is None:
        return "null"
    if not field.is_array:
        return _single(field, value)
    shown = ", ".join(_single(field, element) for element in value[:SHOWN_ELEMENTS])
    return f"[{shown}, {len(value) - SHOWN_ELEMENTS} more]" if len(value) > SHOWN_ELEMENTS else f"[{shown}]"


def _single(field: WireField, value: Any) -> str:
    if field.kind is Kind.RECORDS:
        return f"<{batches_line(value)}>"
    if field.kind is Kind.TEXT:
        return _text(value)
    if field.kind is Kind.UUID:
        return "-" if value == ZERO_UUID else base64.urlsafe_b64encode(value).decode().rstrip("=")
    if field.kind is Kind.BYTES:
        return _bytes(value)
    if field.name.endswith("error_code"):
        return f"{ErrorCode(value).name} ({value})" if value else "NONE"
    return str(value)


def _text(value: str | None) -> str:
    return "null" if value is None else '"' + value.encode("unicode_escape").decode() + '"'


def _bytes(value: Buffer | None) -> str:
    """Format printable bytes as text, others in hex; long ones are cut."""
    if value is None:
        return "null"
    start = bytes(value[:SHOWN_BYTES])
    more = f"... ({len(value)} bytes)" if len(value) > SHOWN_BYTES else ""
    readable = start.decode("ascii", "replace")
    return (f'"{readable}"' if readable.isprintable() and "\ufffd" not in readable else f"0x{start.hex()}") + more
