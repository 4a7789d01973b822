"""Avro and JSON Schema in `anabranch produce` and `consume`, by confluent-kafka's serializers and a schema registry.

The commands write and read JSON; the serializers convert it to and from the stored bytes, which begin with the id of
their schema in the registry. The subject of a schema is TOPIC-value or TOPIC-key, as by default in Kafka's serializers.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from anabranch import ConsumerRecord

    Serialize = Callable[[Any], bytes | None]
    """Encode a JSON value; None stays None. Raises ValueError for a value that does not fit its schema."""

VALUE: Final = "value"
KEY: Final = "key"
AVRO: Final = "avro"
JSON_SCHEMA: Final = "json"
MISSING: Final = "Avro and JSON Schema need pip install 'anabranch[schemas]'"
REGISTRY_CALL_S: Final = 10


def registry_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the registry, and for what is serialized with its schemas."""
    registry = click.option(
        "--schema-registry",
        "-r",
        "registry",
        envvar="ANABRANCH_SCHEMA_REGISTRY",
        show_envvar=True,
        metavar="URL",
        help="The schema registry, for -s; http://USER:PASSWORD@HOST:PORT logs in.",
    )
    serde = click.option(
        "--serde",
        "-s",
        "serdes",
        multiple=True,
        metavar="[key=|value=]avro|json",
        help="As kcat: what is Avro or JSON Schema; may be repeated. Needs --schema-registry.",
    )
    return registry(serde(command))


def schema_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the schemas that a producer writes with."""
    for side in (KEY, VALUE):
        command = click.option(
            f"--{side}-schema",
            f"{side}_schema",
            metavar="SCHEMA|FILE|ID",
            help=f"The schema of -s {side}=...; it is registered. Default: the newest of TOPIC-{side}.",
        )(command)
    return command


def parse_serdes(words: Sequence[str], registry: str | None) -> dict[str, str]:
    """Parse `-s`: key, value -> avro, json. Raises UsageError."""
    serdes: dict[str, str] = {}
    for word in words:
        side, found, kind = word.partition("=")
        if not found:
            side, kind = "", word
        if kind not in (AVRO, JSON_SCHEMA) or side not in ("", KEY, VALUE):
            raise click.UsageError(f"-s takes avro, json, key=avro, value=json and so on, not {word!r}")
        serdes |= dict.fromkeys((side,) if side else (KEY, VALUE), kind)
    if serdes and not registry:
        raise click.UsageError("-s needs --schema-registry URL, where the schemas are")
    return serdes


def serializers(
    registry: str | None, topic: str, serdes: Mapping[str, str], schemas: Mapping[str, str | None]
) -> dict[str, Serialize]:
    """Make the serializers of a topic's keys and values. Raises UsageError for a schema that cannot be read."""
    for side, schema in schemas.items():
        if schema is not None and side not in serdes:
            raise click.UsageError(f"--{side}-schema goes with -s {side}=avro or -s {side}=json")
    return {side: _serializer(registry, topic, side, kind, schemas[side]) for side, kind in serdes.items()}


def _serializer(registry: str | None, topic: str, side: str, kind: str, schema: str | None) -> Serialize:
    with _require_package():
        from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.schema_registry.error import SchemaRegistryError
        from confluent_kafka.schema_registry.json_schema import JSONSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
    settings: dict[str, Any] = {"subject.name.strategy": topic_subject_name_strategy}
    text = None
    if schema is None:
        settings |= {"auto.register.schemas": False, "use.latest.version": True}
    elif schema.isdecimal():
        settings |= {"auto.register.schemas": False, "use.schema.id": int(schema)}
    else:
        text = _schema_text(side, schema)
    client = SchemaRegistryClient({"url": registry, "timeout": REGISTRY_CALL_S})
    try:
        if kind == AVRO:
            serializer = AvroSerializer(client, text, conf=settings)
        else:
            serializer = JSONSerializer(text, client, conf=settings)
    except Exception as error:
        raise click.UsageError(f"--{side}-schema: {error}") from None
    context = SerializationContext(topic, MessageField.KEY if side == KEY else MessageField.VALUE)

    def serialize(content: Any) -> bytes | None:
        if content is None:
            return None
        try:
            stored: bytes = serializer(content, context)
        except SchemaRegistryError as error:
            raise click.ClickException(f"the schema registry refused the schema: {error}") from None
        except (SerializationError, *VALUE_ERRORS) as error:
            raise ValueError(f"the {side} does not fit its schema: {error or type(error).__name__}") from None
        except Exception as error:
            raise _unreachable(registry, error) from None
        return stored

    return serialize


VALUE_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What the serializers raise for a value that does not fit its schema."""


def line_serializer(serialize: Serialize, side: str) -> Callable[[bytes | None], bytes | None]:
    """Make a serializer of the text of a line, which is JSON."""

    def encode(text: bytes | None) -> bytes | None:
        if text is None:
            return None
        try:
            content = json.loads(text)
        except ValueError as error:
            raise ValueError(f'the {side} is not JSON, which a text is in "quotes" only: {error}') from None
        return serialize(content)

    return encode


def deserializer(registry: str | None, serdes: Mapping[str, str]) -> Callable[[ConsumerRecord], ConsumerRecord]:
    """Make a function that replaces the key and the value of a record by JSON text.

    It raises ClickException for bytes that cannot be decoded, and for a registry that does not answer.
    """
    with _require_package():
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroDeserializer
        from confluent_kafka.schema_registry.error import SchemaRegistryError
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer
        from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
    client = SchemaRegistryClient({"url": registry, "timeout": REGISTRY_CALL_S})
    decoders = {
        side: AvroDeserializer(client) if kind == AVRO else JSONDeserializer(None, schema_registry_client=client)
        for side, kind in serdes.items()
    }

    fields = {KEY: MessageField.KEY, VALUE: MessageField.VALUE}

    def decode(record: ConsumerRecord, side: str, stored: bytes | None) -> bytes | None:
        if stored is None or side not in decoders:
            return stored
        try:
            content = decoders[side](stored, SerializationContext(record.topic, fields[side]))
        except (SchemaRegistryError, SerializationError, EOFError, *VALUE_ERRORS) as error:
            place = f"{record.topic}-{record.partition}@{record.offset}"
            raise click.ClickException(
                f"the {side} of {place} is not {serdes[side]} with a schema of this registry: {error}"
            ) from None
        except Exception as error:
            raise _unreachable(registry, error) from None
        return json.dumps(content, ensure_ascii=False, default=_plain).encode()

    def decode_record(record: ConsumerRecord) -> ConsumerRecord:
        return record._replace(key=decode(record, KEY, record.key), value=decode(record, VALUE, record.value))

    return decode_record


def _schema_text(side: str, schema: str) -> str:
    """The text of a schema, which is given itself or as a file. Raises UsageError."""
    text = schema
    if not schema.lstrip().startswith(("{", "[", '"')):
        try:
            text = Path(schema).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise click.UsageError(f"--{side}-schema {schema}: {error}") from None
    try:
        json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--{side}-schema is not JSON: {error}") from None
    return text


def _plain(content: object) -> object:
    """A value of Avro that JSON does not have: bytes as in Avro's JSON encoding, times and numbers as text."""
    if isinstance(content, bytes):
        return content.decode("latin-1")
    if isinstance(content, datetime.datetime | datetime.date | datetime.time):
        return content.isoformat()
    if isinstance(content, decimal.Decimal | uuid.UUID):
        return str(content)
    raise TypeError(f"{type(content).__name__} has no JSON form")


def _unreachable(registry: str | None, error: Exception) -> click.ClickException:
    """The error of a registry that does not answer; the HTTP library's own exceptions have no common base class."""
    return click.ClickException(f"{error or type(error).__name__}; is a schema registry running at {registry}?")


@contextlib.contextmanager
def _require_package() -> Iterator[None]:
    """Turn a missing package into one line that says what to install."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(f"{MISSING} ({error})") from None
