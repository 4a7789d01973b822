"""Parses and validates the options of the `anabranch` source, named as those of Spark's Kafka source.

The error for an invalid option lists valid values. An option of Kafka's client without an effect here is refused,
rather than silently ignored. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EARLIEST: Final = -2
LATEST: Final = -1

Client = Mapping[str, str]
"""Kafka's security properties of a client. They hold secrets: no repr shows them."""
OPEN: Final[Client] = {}
SECURED: Final = frozenset(
    {
        *("security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"),
        *("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates"),
        *("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key"),
        *("ssl.keystore.certificate.chain", "ssl.key.password", "ssl.enabled.protocols", "ssl.cipher.suites"),
        "ssl.endpoint.identification.algorithm",
    }
)
"""Their names. `spark_jobs.secured` implements them."""

Offsets = dict[str, dict[str, int]]
"""Per topic and partition, as in JSON: the format of Spark's Kafka source in checkpoints."""

CLIENT_OPTIONS: Final = {
    "client.id": "client.id",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
}
"""Options of Kafka's client that have an effect here -> their names in librdkafka."""
IGNORED: Final = frozenset({"group.id", "key.deserializer", "value.deserializer", "session.timeout.ms"})
UNSUPPORTED: Final = frozenset({"minoffsetspertrigger", "maxtriggerdelay"})
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
STRATEGIES: Final = ("error", "latest")


@dataclass(frozen=True, slots=True)
class Position:
    """The start or end of a query: a bound of the log, or per partition an offset (or bound) or a time."""

    bound: int | None = None
    offsets: Mapping[str, Mapping[str, int]] | None = None
    times_ms: Mapping[str, Mapping[str, int]] | None = None
    time_ms: int | None = None
    """One time for all partitions."""


@dataclass(frozen=True, slots=True)
class Options:
    """All options as one value."""

    servers: str
    topics: tuple[str, ...]
    assigned: Mapping[str, tuple[int, ...]]
    pattern: str | None
    start: Position
    end: Position
    headers: bool
    fail_on_data_loss: bool
    late_times_are_latest: bool
    """Whether a time after the newest record means the end of the log, rather than an error."""
    offsets_per_trigger: int | None
    partitions_min: int | None
    records_per_partition_max: int | None
    client: Mapping[str, str]
    secured: Client = field(default_factory=dict, repr=False)
    """The client's security properties."""

    @property
    def committed_only(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.client.get("isolation.level") == "read_committed"

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool = False) -> Options:
        """Parse the strings given with `.option(...)`, in upper or lower case. Raises ValueError."""
        given = {name.lower(): value for name, value in options.items()}
        client = {name[6:]: value for name, value in given.items() if name.startswith("kafka.")}
        servers = given.get("bootstrap.servers") or client.pop("bootstrap.servers", None)
        client.pop("bootstrap.servers", None)
        if not servers:
            raise ValueError('the anabranch source needs .option("kafka.bootstrap.servers", "host:port")')
        for name in UNSUPPORTED & given.keys():
            raise ValueError(f"{name} is an option of Spark's Kafka source that this source does not support")
        topics, assigned, pattern = _what(given)
        return cls(
            servers=servers,
            topics=topics,
            assigned=assigned,
            pattern=pattern,
            start=_position(given, "starting", "latest" if streaming else "earliest"),
            end=_position(given, "ending", "latest"),
            headers=_flag(given, "includeheaders", default=False),
            fail_on_data_loss=_flag(given, "failondataloss", default=True),
            late_times_are_latest=_choice(given, "startingoffsetsbytimestampstrategy", STRATEGIES) == "latest",
            offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
            partitions_min=_count(given, "minPartitions"),
            records_per_partition_max=_count(given, "maxRecordsPerPartition"),
            client=_client(client),
            secured={name: value for name, value in client.items() if name in SECURED},
        )._check(streaming)

    def _check(self, streaming: bool) -> Options:
        if not streaming and self.start.bound == LATEST:
            raise ValueError("startingOffsets of a batch cannot be latest: the batch would be empty")
        if self.end.bound == EARLIEST or _mentions(self.end, EARLIEST):
            raise ValueError("endingOffsets cannot be earliest")
        return self


def _what(given: Mapping[str, str]) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]], str | None]:
    named = [name for name in ("subscribe", "assign", "subscribepattern") if given.get(name, "").strip(" ,")]
    if len(named) != 1:
        raise ValueError("set exactly one of subscribe, assign and subscribePattern")
    text = given[named[0]].strip()
    if named == ["subscribe"]:
        return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip())), {}, None
    if named == ["assign"]:
        assigned = _json(text, "assign", list)
        indexes = {topic: tuple(sorted(_whole(one, "assign") for one in its)) for topic, its in assigned.items()}
        return tuple(indexes), indexes, None
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"subscribePattern is not a regular expression: {error}") from None
    return (), {}, text


def _position(given: Mapping[str, str], side: str, default: str) -> Position:
    """Parse a position. As in Spark, one time for all takes precedence, then times, then offsets."""
    if (time := given.get(f"{side}timestamp")) is not None:
        return Position(time_ms=_whole(time, f"{side}Timestamp"))
    if (times := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Position(times_ms=_numbers(times, f"{side}OffsetsByTimestamp"))
    text = given.get(f"{side}offsets", default).strip()
    bounds = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in bounds:
        return Position(bound=bounds[text.lower()])
    name = f"{side}Offsets"
    if not text.startswith("{"):
        raise ValueError(f'{name} is earliest, latest or JSON like {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}')
    offsets = _numbers(text, name)
    if any(offset < EARLIEST for its in offsets.values() for offset in its.values()):
        raise ValueError(f"{name}: an offset is a number from 0, -1 for latest or -2 for earliest")
    return Position(offsets=offsets)


def _mentions(position: Position, bound: int) -> bool:
    return any(offset == bound for its in (position.offsets or {}).values() for offset in its.values())


def _numbers(text: str, name: str) -> dict[str, dict[str, int]]:
    found = _json(text, name, dict)
    return {
        topic: {str(_whole(index, name)): _whole(number, name) for index, number in its.items()}
        for topic, its in found.items()
    }


def _json(text: str, name: str, kind: type) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(its, kind) for its in found.values()) or not found:
        raise ValueError(f"{name} is a JSON object with topics as its names, not {text!r}")
    return found


def _whole(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: {value!r} is not a whole number") from None


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"{name} is a number from 1, not {text!r}")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _choice(given, name, (str(default).lower(), str(not default).lower())) == "true"


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = given.get(name, choices[0]).lower()
    if text not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {text!r}")
    return text


def _client(given: Mapping[str, str]) -> dict[str, str]:
    for name in given:
        if name not in CLIENT_OPTIONS and name not in IGNORED and name not in SECURED:
            known = sorted({*CLIENT_OPTIONS, *SECURED})
            raise ValueError(f"kafka.{name} is not supported; supported: {', '.join(known)}")
    level = _choice(given, "isolation.level", ISOLATION_LEVELS)
    found = {name: value for name, value in given.items() if name in CLIENT_OPTIONS}
    return {**found, "isolation.level": level} if "isolation.level" in found else found
