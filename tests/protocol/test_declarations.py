"""The declarations compared with Kafka's schemas, from kafka-python's JSON files.

Two codecs that read one wrong declaration agree with each other; this is the check that they would not pass. Requests
that only brokers and controllers send are not among those files.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anabranch.protocol.registry import APIS, Api
from anabranch.protocol.wire import LAST_VERSION, ZERO_UUID, Kind, WireField, fields_of
from tests.cases import for_each
from tests.protocol.messages import declared_own_tags

OWN_TAGS = 2530
TYPES = {
    "bool": (Kind.BOOLEAN, False),
    "int8": (Kind.INT8, 0),
    "int16": (Kind.INT16, 0),
    "uint16": (Kind.UINT16, 0),
    "int32": (Kind.INT32, 0),
    "uint32": (Kind.UINT32, 0),
    "int64": (Kind.INT64, 0),
    "float64": (Kind.FLOAT64, 0.0),
    "uuid": (Kind.UUID, ZERO_UUID),
    "string": (Kind.TEXT, ""),
    "bytes": (Kind.BYTES, b""),
    "records": (Kind.RECORDS, None),
}
KAFKA_PYTHON = importlib.util.find_spec("kafka")
assert KAFKA_PYTHON is not None and KAFKA_PYTHON.origin is not None, "kafka-python belongs to the dev extra"
SCHEMAS = Path(KAFKA_PYTHON.origin).parent / "protocol" / "schemas" / "resources"
COVERED = [
    (api, kind) for api in APIS for kind in ("Request", "Response") if (SCHEMAS / f"{api.name}{kind}.json").is_file()
]


def schema(api: Api, kind: str) -> dict[str, Any]:
    text = (SCHEMAS / f"{api.name}{kind}.json").read_text()
    loaded: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    return loaded


def in_range(versions: str | None, version: int) -> bool:
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", versions or "")
    if match is None:
        return False
    first, last = int(match[1]), LAST_VERSION if match[2] == "+" else int(match[3] or match[1])
    return first <= version <= last


def snake(name: str) -> str:
    name = name.replace("KRaft", "Kraft").replace("ISR", "Isr")
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def theirs(fields: list[dict[str, Any]], common: dict[str, Any], version: int) -> Iterator[tuple[Any, ...]]:
    """(name, kind, array, nullable, tag, what is inside) of every field of one version, in wire order."""
    for field in fields:
        if not in_range(field["versions"], version):
            continue
        base = field["type"].removeprefix("[]")
        inside = None if base in TYPES else tuple(theirs(field.get("fields") or common[base], common, version))
        nullable = in_range(field.get("nullableVersions"), version)
        kind = TYPES[base][0] if base in TYPES else None
        yield (snake(field["name"]), kind, field["type"].startswith("[]"), nullable, field.get("tag"), inside)


def ours(message: type[Any], version: int) -> Iterator[tuple[Any, ...]]:
    for field in fields_of(message):
        if field.exists(version) and (field.tag is None or field.tag < OWN_TAGS):
            inside = None if field.struct is None else tuple(ours(field.struct, version))
            yield (field.name, field.kind, field.is_array, field.may_be_null(version), field.tag, inside)


@for_each(COVERED)
def test_every_version_has_fields_and_order_of_kafka(api: Api, kind: str) -> None:
    loaded = schema(api, kind)
    common = {struct["name"]: struct["fields"] for struct in loaded.get("commonStructs", [])}
    message = api.request if kind == "Request" else api.response
    for version in range(api.last_version + 1):
        assert tuple(ours(message, version)) == tuple(theirs(loaded["fields"], common, version)), f"v{version}"
        assert api.flexible(version) == in_range(loaded.get("flexibleVersions"), version)


@for_each(COVERED)
def test_defaults_of_absent_fields_are_those_of_kafka(api: Api, kind: str) -> None:
    loaded = schema(api, kind)
    common = {struct["name"]: struct["fields"] for struct in loaded.get("commonStructs", [])}
    _compare_defaults(loaded["fields"], api.request if kind == "Request" else api.response, common)


def _compare_defaults(fields: list[dict[str, Any]], message: type[Any], common: dict[str, Any]) -> None:
    declared = {field.name: field for field in fields_of(message)}
    for field in fields:
        own = declared.get(snake(field["name"]))
        if own is None:
            continue  # of a version beyond ours
        base = field["type"].removeprefix("[]")
        if base not in TYPES:
            assert own.struct is not None
            _compare_defaults(field.get("fields") or common[base], own.struct, common)
        elif own.default is not dataclasses.MISSING:
            assert own.absent_value() == _default(field, own), f"{message.__name__}.{own.name}"


def _default(field: dict[str, Any], own: WireField) -> Any:
    given, base = field.get("default"), field["type"]
    if given is None:
        return [] if own.is_array else TYPES[base][1]
    if given == "null":
        return None
    if own.kind is Kind.BOOLEAN:
        return str(given).lower() == "true"
    return given if own.kind is Kind.TEXT else int(str(given), 0)


def test_most_messages_are_covered() -> None:
    assert len(COVERED) >= 90


BETWEEN_BROKERS = {"AlterPartition"}
"""Its answer is for brokers only, which know generations all of them."""


@for_each(api for api in APIS if api.key < OWN_TAGS)
def test_response_with_own_tags_has_a_request_that_enables_them(api: Api) -> None:
    if set(declared_own_tags(api.response)) and api.name not in BETWEEN_BROKERS:
        assert set(declared_own_tags(api.request)), api.name
