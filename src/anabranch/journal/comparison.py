"""Compares responses of two clusters as plain values, and ignores legitimate differences.

- **Free**: ignored everywhere: addresses, throttle times, cluster ids, times of brokers' actions.
- **Named**: generated ids. They become "topic_id 1", "topic_id 2" in the order of their first appearance, so two
  responses agree exactly if the *same* ids appear at the same places.
- **Messages**: the text of an error message may differ. Where Kafka sends one, this package must, too.
- **Unordered**: lists that Kafka fills from a hash map; they are sorted.
- This package's own tagged fields (number 2530 and up) are ignored.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records
from anabranch.protocol.wire import ZERO_UUID, Kind, fields_of

FREE: Final = frozenset(
    {
        "throttle_time_ms",
        "host",
        "port",
        "client_host",
        "cluster_id",
        "last_timestamp",
        "transaction_start_time_ms",
        "issue_timestamp_ms",
        "expiry_timestamp_ms",
        "max_timestamp_ms",
        "log_append_time_ms",
        "log_dir",
        "total_bytes",
        "usable_bytes",
        "finalized_features_epoch",
    }
)
NAMED: Final = {
    "topic_id": "topic_id",
    "producer_id": "producer_id",
    "current_producer_id": "producer_id",
    "member_id": "member_id",
    "leader": "member_id",
    "session_id": "session_id",
    "broker_epoch": "broker_epoch",
    "controller_id": "controller",
}
SAID: Final = frozenset({"error_message", "message", "batch_index_error_message", "documentation", "status_detail"})
SOMETHING_SAID: Final = "(said)"
NOTHING_SAID: Final = "(nothing)"
UNORDERED: Final = frozenset(
    {
        "AddPartitionsToTxnResponse.results_by_topic_v3_and_below",
        "AddPartitionsToTxnResult.topic_results",
        "AddPartitionsToTxnTopicResult.results_by_partition",
        "AlterPartitionReassignmentsResponse.responses",
        "AlterReplicaLogDirTopicResult.partitions",
        "AlterReplicaLogDirsResponse.results",
        "CreatableTopicResult.configs",
        "DeleteGroupsResponse.results",
        "DescribeClientQuotasResponse.entries",
        "DescribeConfigsResult.configs",
        "ElectLeadersResponse.replica_election_results",
        "EntryData.entity",
        "EntryData.values",
        "EntryDataResult.entity",
        "JoinGroupResponse.members",
        "ListGroupsResponse.groups",
        "DescribeClusterResponse.brokers",
        "MetadataResponse.brokers",
        "MetadataResponse.topics",
        "MetadataResponseTopic.partitions",
        "OffsetCommitResponseTopic.partitions",
        "OffsetDeleteResponseTopic.partitions",
        "OffsetFetchResponseTopic.partitions",
        "OffsetFetchResponseTopics.partitions",
        "ProduceResponse.responses",
        "ReassignableTopicResponse.partitions",
        "ReplicaElectionResult.partition_result",
        "TopicData.partitions",
        "TopicProduceResponse.partition_responses",
        "TransactionState.topics",
        "TxnOffsetCommitResponseTopic.partitions",
        "WritableTxnMarkerResult.topics",
        "WriteTxnMarkersResponse.markers",
    }
)
MISSING: Final = "not there"
OURS_FROM: Final = 2530
"""KIP-253's tags and API keys in this package begin here."""
OUR_PREFIX: Final = "reshard."
OUR_CONFIGS: Final = frozenset({"enable.ordered.delivery"})


@dataclass(slots=True)
class Namer:
    """Replaces ids by names for the comparison. `prefix`: the beginning of the names of this run."""

    prefix: str
    from_zero: tuple[str, ...] = ()
    """The kinds for which zero is an id, not "none"."""
    unordered: frozenset[str] = UNORDERED
    """The lists that are compared without their order."""
    free: frozenset[str] = FREE
    """The fields that are not compared."""
    _known: dict[str, dict[Any, str]] = field(default_factory=dict)

    def name(self, kind: str, value: Any) -> Any:
        """`kind 1`, `kind 2` ...; a value that means "none" stays."""
        if value in (-1, 0, "", None, ZERO_UUID) and not (value == 0 and kind in self.from_zero):
            return value.hex() if isinstance(value, bytes) else value
        known = self._known.setdefault(kind, {})
        return known.setdefault(value, f"{kind} {len(known) + 1}")


def plain(value: Any, version: int, namer: Namer) -> Any:
    """A response as dicts, lists and scalars."""
    return {
        one.name: _field(type(value).__name__, one, getattr(value, one.name), version, namer)
        for one in fields_of(type(value))
        if one.exists(version) and one.name not in namer.free and (one.tag is None or one.tag < OURS_FROM)
    }


def _field(owner: str, field_: Any, value: Any, version: int, namer: Namer) -> Any:
    if field_.name in NAMED and not field_.is_array:
        return namer.name(NAMED[field_.name], value)
    if field_.name in SAID:
        return SOMETHING_SAID if value else NOTHING_SAID
    if field_.kind is Kind.RECORDS:
        return None if value is None else records_of(bytes(value), namer)
    if not field_.is_array or value is None:
        return _scalar(value, version, namer)
    if f"{owner}.{field_.name}" not in namer.unordered:
        return [_scalar(one, version, namer) for one in value if not _ours(one)]
    by_name = sorted(value, key=lambda one: getattr(one, "name", None) or "")  # both responses number their ids alike
    return sorted((_scalar(one, version, namer) for one in by_name if not _ours(one)), key=repr)


def _ours(row: Any) -> bool:
    """Whether a row is about a feature that Kafka does not have."""
    name = getattr(row, "name", None) or ""
    return getattr(row, "api_key", 0) >= OURS_FROM or name in OUR_CONFIGS or name.startswith(OUR_PREFIX)


def _scalar(value: Any, version: int, namer: Namer) -> Any:
    if isinstance(value, str):
        return value.replace(namer.prefix, "$") if namer.prefix else value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value if value is None or isinstance(value, int | float) else plain(value, version, namer)


def records_of(data: bytes, namer: Namer) -> Any:
    """Record batches as headers and records; older message sets as bytes."""
    if len(data) > 16 and data[16] < 2:
        return messages_of(data)
    batches = []
    try:
        for position, header in iter_batches(data):
            seen = header._asdict()
            for derived in ("batch_length", "length", "crc"):
                seen.pop(derived, None)
            seen["producer_id"] = namer.name("producer_id", header.producer_id)
            if header.is_control or header.is_log_append_time:
                seen["base_timestamp"] = seen["max_timestamp"] = "the broker's"
            seen["records"] = [
                repr(record._replace(timestamp_ms=0) if header.is_control or header.is_log_append_time else record)
                for record in iter_records(data, position)
            ]
            batches.append(seen)
    except DecodeError as error:
        batches.append({"not a batch": str(error)})
    return batches


def messages_of(data: bytes) -> list[str]:
    """The messages of an old message set, without a partial one at the end: Kafka pads, and consumers drop it."""
    messages = []
    while len(data) > 12 and (size := 12 + int.from_bytes(data[8:12], "big")) <= len(data):
        messages.append(data[:size].hex())
        data = data[size:]
    return messages


def unequal(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The differences of two plain values; where the first has no text, the second may have one."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one | other:
            yield from unequal(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list):
        yield from _unequal_lists(one, other, path)
    elif (one != other or type(one) is not type(other)) and (one, other) != (NOTHING_SAID, SOMETHING_SAID):
        yield path, one, other


def _unequal_lists(ones: list[Any], others: list[Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    """Match rows with a name by the name, so that one missing row is one difference."""
    a, b = _rows_by_name(ones), _rows_by_name(others)
    if a is not None and b is not None and list(a) != list(b):
        for name in a | b:
            if name not in a or name not in b:
                yield f"{path}[{name}]", a.get(name, MISSING), b.get(name, MISSING)
            else:
                yield from unequal(a[name], b[name], f"{path}[{name}]")
        if set(a) == set(b):
            yield f"{path}, the order", list(a), list(b)
    elif len(ones) == len(others):
        for index, (one, other) in enumerate(zip(ones, others, strict=True)):
            yield from unequal(one, other, f"{path}[{index}]")
    else:
        yield path, ones, others


def _rows_by_name(rows: list[Any]) -> dict[Any, Any] | None:
    for key in ("name", "api_key"):
        named = {row[key]: row for row in rows if isinstance(row, dict) and key in row}
        if rows and len(named) == len(rows):
            return named
    return None
