"""Golden frames: requests of real clients and a node's responses, with the decoded values.

One JSON file per client in `golden/`. Ports are always 9092; everything else is as it was on the wire.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.protocol import codec
from anabranch.protocol.connection import decode_request, decode_response
from anabranch.protocol.registry import APIS, BY_NAME, Api
from anabranch.protocol.wire import Kind, fields_of

DIRECTORY = Path(__file__).parent / "golden"
EVERYTHING = {api.key: (0, api.last_version) for api in APIS}


@dataclass(frozen=True)
class Exchange:
    """A request and its answer, both without the length in front."""

    api: str
    version: int
    client_id: str | None
    correlation_id: int
    request: str
    asked: Any
    response: str
    answered: Any


def plain(message: Any, version: int) -> Any:
    """A decoded message as JSON: only the version's fields, bytes in hex, records by their checksum."""
    found = {}
    for field in fields_of(type(message)):
        if field.exists(version):
            content = getattr(message, field.name)
            if field.struct is None:
                found[field.name] = _plain_value(field.kind, content)
            elif field.is_array:
                found[field.name] = None if content is None else [plain(one, version) for one in content]
            else:
                found[field.name] = None if content is None else plain(content, version)
    return found


def _plain_value(kind: Kind | None, content: Any) -> Any:
    if isinstance(content, list):
        return [_plain_value(kind, one) for one in content]
    if kind is Kind.RECORDS and content is not None:
        return f"{len(content)} bytes, crc32 {zlib.crc32(content):08x}"
    return bytes(content).hex() if isinstance(content, bytes | bytearray | memoryview) else content


def response_head(api: Api, version: int, correlation_id: int) -> bytes:
    """What stands before the body of an answer."""
    flexible = api.response_header_version(version) == 1
    return correlation_id.to_bytes(4, "big", signed=True) + (b"\0" if flexible else b"")


def exchange_of(request: bytes, response: bytes, port: int = 9092) -> Exchange:
    """Decode both frames; the port of the answer becomes 9092."""
    asked = decode_request(request, EVERYTHING)
    answered = decode_response(response, asked.api, asked.version)
    head = response_head(asked.api, asked.version, asked.correlation_id)
    assert head + codec.encode(answered, asked.version) == response, f"{asked.api.name}: our own answer comes out else"
    _replace_port(answered, port)
    return Exchange(
        api=asked.api.name,
        version=asked.version,
        client_id=asked.client_id,
        correlation_id=asked.correlation_id,
        request=request.hex(),
        asked=plain(asked.body, asked.version),
        response=(head + codec.encode(answered, asked.version)).hex(),
        answered=plain(answered, asked.version),
    )


def _replace_port(message: Any, port: int) -> None:
    for field in fields_of(type(message)):
        content = getattr(message, field.name)
        if field.name == "port" and content == port:
            message.port = 9092
        elif field.struct is not None and content is not None:
            for one in content if field.is_array else [content]:
                _replace_port(one, port)


def load() -> list[tuple[str, Exchange]]:
    """Every exchange there is, with its client."""
    return [
        (path.stem, Exchange(**one))
        for path in sorted(DIRECTORY.glob("*.json"))
        for one in json.loads(path.read_text())
    ]


def save(client: str, exchanges: list[Exchange]) -> None:
    """Write the exchanges of one client, by API and version."""
    rows = sorted(exchanges, key=lambda one: (BY_NAME[one.api].key, one.version))
    text = ",\n".join(json.dumps(dataclasses.asdict(one)) for one in rows)
    (DIRECTORY / f"{client}.json").write_text(f"[\n{text}\n]\n")
