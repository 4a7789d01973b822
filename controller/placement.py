"""Chooses the brokers that hold the replicas of new partitions.

The deterministic part is Kafka's (`AdminUtils.assignReplicasToBrokers`): leaders go round robin from `start_index`,
the j-th further replica is placed at a growing distance, and the distance grows by one each time the round is
complete. With racks, the brokers are interleaved rack by rack and a candidate is passed over while another rack has
no replica yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.protocol.errors import ErrorCode, KafkaError


def assign_replicas(
    brokers: Iterable[int] | Iterable[tuple[int, str | None]],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, list[int]]:
    """The replicas of new partitions. Brokers are ids, or (id, rack); racks count if every broker has one."""
    racks = dict(broker if isinstance(broker, tuple) else (broker, None) for broker in brokers)
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.",
        )
    known_racks = {broker: rack for broker, rack in racks.items() if rack}
    rack_aware = len(known_racks) == len(racks)
    ring = interleave(known_racks) if rack_aware else sorted(racks)
    assignment: dict[int, list[int]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + start_index) % len(ring)
        candidates = [ring[first], *(ring[_further(first, shift, j, len(ring))] for j in range(len(ring) - 1))]
        if rack_aware:
            candidates = spread(candidates, known_racks)
        assignment[partition] = candidates[:replication_factor]
    return assignment


def interleave(racks: dict[int, str]) -> list[int]:
    """Brokers in the order rack 1, rack 2, ..., rack 1, rack 2, ...; by id within a rack."""
    members: dict[str, list[int]] = {}
    for broker in sorted(racks):
        members.setdefault(racks[broker], []).append(broker)
    ring: list[int] = []
    for turn in range(max(map(len, members.values()), default=0)):
        ring += [members[rack][turn] for rack in sorted(members) if turn < len(members[rack])]
    return ring


def spread(candidates: Sequence[int], racks: dict[int, str]) -> list[int]:
    """The candidates reordered so that each rack has one before any has two."""
    chosen: list[int] = []
    waiting = list(candidates)
    while waiting:
        used: set[str] = set()
        for broker in list(waiting):
            if racks[broker] not in used:
                used.add(racks[broker])
                chosen.append(broker)
                waiting.remove(broker)
    return chosen


def _further(first: int, shift: int, j: int, brokers: int) -> int:
    return (first + 1 + (shift + j) % (brokers - 1)) % brokers
