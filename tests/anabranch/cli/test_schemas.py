"""Avro and JSON Schema on the command line, with confluent-kafka's serializers and a registry in this process."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.cli.schemas import parse_serdes
from tests.anabranch.cli.conftest import Command
from tests.anabranch.cli.schema_registry import SchemaRegistry, schema_registry

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
FARE = {"title": "Fare", "type": "object", "properties": {"euro": {"type": "number"}}, "required": ["euro"]}
ABSENT = [name for name in ("fastavro", "jsonschema", "attrs", "authlib") if importlib.util.find_spec(name) is None]
Registry = tuple[str, SchemaRegistry]


@pytest.fixture
def registry() -> Iterator[Registry]:
    if ABSENT:
        pytest.skip(f"NO SERIALIZERS ({', '.join(ABSENT)}): Avro and JSON Schema were NOT tried: .[schemas] has them")
    with schema_registry() as served:
        yield served


def produce(servers: str, url: str, topic: str, *words: str, lines: str = "") -> Result:
    at = ("--bootstrap-server", servers, "--schema-registry", url)
    return CliRunner().invoke(cli, ["produce", topic, *at, *words], input=lines)


def consume(servers: str, url: str, topic: str, *words: str) -> Result:
    at = ("--bootstrap-server", servers, "--schema-registry", url, "--until-end")
    return CliRunner().invoke(cli, ["consume", topic, *at, *words])


def test_avro_values_are_written_and_read(servers: str, registry: Registry, tmp_path: Path) -> None:
    url, held = registry
    file = tmp_path / "flight.avsc"
    file.write_text(json.dumps(FLIGHT))
    lines = '{"carrier": "LH", "delay": 12}\n{"carrier": "ÅF"}\n'
    made = produce(servers, url, "avro-flights", "-s", "value=avro", "--value-schema", str(file), lines=lines)
    assert made.exit_code == 0, made.output
    assert [one["schemaType"] for one in held.schemas] == ["AVRO"] and list(held.subjects) == ["avro-flights-value"]
    read = consume(servers, url, "avro-flights", "-s", "value=avro", "--values")
    assert read.exit_code == 0, read.output
    assert [json.loads(line) for line in read.output.splitlines()] == [
        {"carrier": "LH", "delay": 12},
        {"carrier": "ÅF", "delay": None},
    ]
    stored = CliRunner().invoke(
        cli, ["consume", "avro-flights", "--until-end", "--values", "--bootstrap-server", servers]
    )
    assert stored.stdout_bytes.startswith(b"\x00\x00\x00\x00\x01\x04LH")


def test_json_lines_with_key_and_value_schemas_survive_the_round_trip(servers: str, registry: Registry) -> None:
    url, _ = registry
    lines = '{"key": "LH400", "value": {"euro": 99.5}}\n{"key": "LH401", "value": null}\n'
    both = ("-s", "key=avro", "-s", "value=json", "--json")
    schemas = ("--key-schema", '"string"', "--value-schema", json.dumps(FARE))
    made = produce(servers, url, "fares", *both, *schemas, lines=lines)
    assert made.exit_code == 0, made.output
    read = consume(servers, url, "fares", *both)
    assert read.exit_code == 0, read.output
    rows = [json.loads(line) for line in read.output.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("LH400", {"euro": 99.5}), ("LH401", None)]
    again = produce(servers, url, "fares", *both, lines=read.output)  # by the newest schemas of its subjects
    assert again.exit_code == 0, again.output
    assert len(consume(servers, url, "fares", *both).output.splitlines()) == 4


def test_values_without_json_type_are_shown_as_text(servers: str, registry: Registry) -> None:
    """Written by another application, with the serializer itself."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "raw", "type": "bytes"}, {"name": "at", "type": at}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry[0]}), schema)
    moment = datetime(2026, 11, 28, 12, tzinfo=UTC)
    stored = serializer({"raw": b"a\xff", "at": moment}, SerializationContext("other", MessageField.VALUE))
    line = json.dumps({"value": {"base64": base64.b64encode(stored or b"").decode()}})
    words = ["produce", "other", "--json", "--bootstrap-server", servers]
    assert CliRunner().invoke(cli, words, input=line).exit_code == 0
    read = consume(servers, registry[0], "other", "-s", "value=avro", "--values")
    assert json.loads(read.output) == {"raw": "aÿ", "at": "2026-11-28T12:00:00+00:00"}


def test_schema_is_selected_by_id(servers: str, registry: Registry) -> None:
    url, held = registry
    held.post("/subjects/by-id-value/versions", {"schema": json.dumps(FLIGHT)})
    made = produce(servers, url, "by-id", "-s", "value=avro", "--value-schema", "1", '{"carrier": "LH"}')
    assert made.exit_code == 0, made.output
    assert '{"carrier": "LH", "delay": null}' in consume(servers, url, "by-id", "-s", "value=avro").output


@pytest.mark.parametrize(
    ("words", "lines", "expected"),
    [
        (("value=avro", json.dumps(FLIGHT)), '{"carrier": "LH"}\n{"carrier": 7}\n', "line 2: the value does not fit"),
        (("value=json", json.dumps(FARE)), '{"cent": 1}\n', "line 1: the value does not fit its schema"),
        (("value=avro", json.dumps(FLIGHT)), "LH400\n", "line 1: the value is not JSON"),
        (("value=avro", '{"type": "nothing"}'), "1\n", "--value-schema"),
        (("value=avro", "/nowhere.avsc"), "1\n", "No such file"),
    ],
)
def test_invalid_value_or_schema_is_named(
    servers: str, registry: Registry, words: tuple[str, str], lines: str, expected: str
) -> None:
    serde, schema = words
    made = produce(servers, registry[0], "wrong", "-s", serde, "--value-schema", schema, lines=lines)
    assert made.exit_code == 2 and expected in made.output, made.output
    assert "Traceback" not in made.output


def test_bytes_without_schema_and_missing_schema_are_named(servers: str, registry: Registry) -> None:
    plain = CliRunner().invoke(cli, ["produce", "plain", "LH400", "--bootstrap-server", servers])
    assert plain.exit_code == 0, plain.output
    read = consume(servers, registry[0], "plain", "-s", "value=avro")
    assert read.exit_code == 1, read.output
    assert "the value of plain-0@0 is not avro with a schema of this registry" in read.output
    made = produce(servers, registry[0], "no-schema", "-s", "value=avro", "1")
    assert made.exit_code == 1 and "no-schema-value" in made.output, made.output


@pytest.mark.usefixtures("registry")
def test_unreachable_registry_is_named(servers: str) -> None:
    url = "http://127.0.0.1:1"
    made = produce(servers, url, "t", "-s", "value=avro", "--value-schema", '"string"', '"a"')
    assert made.exit_code == 1 and f"is a schema registry running at {url}?" in made.output, made.output


def test_missing_serializers_are_named(anabranch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    for words in (("produce", "t", "1"), ("consume", "t")):
        result = anabranch(*words, "-s", "avro", "-r", "http://127.0.0.1:1")
        assert result.exit_code == 2 and "pip install 'anabranch[schemas]'" in result.output, result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["avro"], {"key": "avro", "value": "avro"}),
        (["value=json"], {"value": "json"}),
        (["key=avro", "value=json"], {"key": "avro", "value": "json"}),
    ],
)
def test_serdes_are_parsed(words: list[str], expected: dict[str, str]) -> None:
    assert parse_serdes(words, "http://r") == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("produce", "t", "-s", "value=protobuf", "-r", "http://r"), "-s takes avro, json, key=avro"),
        (("consume", "t", "-s", "avro"), "-s needs --schema-registry URL"),
        (("produce", "t", "1", "--value-schema", "1"), "--value-schema goes with -s value=avro"),
    ],
)
def test_contradictory_options_are_refused(anabranch: Command, words: tuple[str, ...], expected: str) -> None:
    result = anabranch(*words)
    assert result.exit_code == 2 and expected in result.output, result.output
