"""Reads a cluster's final state: partition states from ZooKeeper, records and logs from the brokers' directories.

The directories are read as files, after the brokers have ended: the history holds what is on disk, not what a broker
reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.chaos.history import History, Place, Published, StateWritten, Stored
from anabranch.controller.model import LeaderAndIsr
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import NoNode, ZkSession
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records

LOG_SUFFIX: Final = ".log"


@dataclass
class ClusterHistory(History):
    """A history that takes generations from the partitions' own record, not from every state."""

    gen_start: dict[Place, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Place -> (class generation, first leader epoch) pairs."""

    def generation_of(self, place: Place, leader_epoch: int) -> int:
        """The class generation that a partition served in a leader epoch."""
        generations = [generation for generation, epoch in self.gen_start.get(place, ()) if epoch <= leader_epoch]
        return max(generations, default=0)


async def read_states(session: ZkSession, topic: str, history: ClusterHistory) -> dict[Place, LeaderAndIsr]:
    """Read the topic's current state, and add it to the history. Returns partition -> state."""
    data, _ = await session.get(paths.topic(topic))
    body = znodes.decode_topic(paths.topic(topic), data)
    history.published.append(Published(history.tick(), topic, body.base, tuple(body.history)))
    found: dict[Place, LeaderAndIsr] = {}
    for index in sorted(body.assignment):
        path = paths.partition_state(topic, index)
        try:
            data, stat = await session.get(path)
        except NoNode:
            continue  # planned, and not created yet
        state = znodes.decode_partition_state(path, data)
        place = (topic, index)
        found[place] = state
        history.gen_start[place] = tuple(state.gen_start)
        history.states.append(
            StateWritten(
                history.tick(),
                place,
                stat.version,
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                state.controller_epoch,
                state.generation,
                state.sealed,
            )
        )
    return found


def read_logs(directories: Mapping[int, Path], states: Mapping[Place, LeaderAndIsr], history: ClusterHistory) -> None:
    """Add to the history the bytes of all replicas, and the records of the leaders' logs."""
    for place, state in states.items():
        replicas = {broker: content(directory, place) for broker, directory in directories.items()}
        history.replicas[place] = replicas
        history.stored += records(place, replicas[state.leader])


def content(directory: Path, place: Place) -> bytes:
    """The bytes of one replica's log, all segments."""
    segments = sorted((directory / f"{place[0]}-{place[1]}").glob(f"*{LOG_SUFFIX}"))
    return b"".join(segment.read_bytes() for segment in segments)


def records(place: Place, log: bytes) -> Iterator[Stored]:
    """The records of a log."""
    for position, header in iter_batches(log):
        if header.is_control:
            continue
        for index, record in enumerate(iter_records(log[position : position + header.size_bytes])):
            yield Stored(
                place,
                record.offset,
                header.partition_leader_epoch,
                (record.key or b"").decode(),
                (record.value or b"").decode(),
                header.producer_id,
                header.producer_epoch,
                header.base_sequence + index,
            )


def tracebacks(logs: Iterable[Path]) -> Iterator[str]:
    """Yield unexpected exceptions in the nodes' logs: each is a bug, even without an effect on records."""
    for path in logs:
        lines = path.read_text(errors="replace").splitlines()
        for place, line in enumerate(lines):
            if line.startswith("Traceback"):
                end = next((one for one in lines[place + 1 :] if one and not one.startswith(" ")), "")
                yield f"{path.name}:{place + 1}: {end}"
