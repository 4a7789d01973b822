"""A process that writes logs until it is killed, again and again, and another that keeps its word for it.

    python -m tests.broker.storage.killed_writer DIRECTORY ROUNDS SEED

Each round forks a writer, lets it say some things, and kills it with SIGKILL wherever it is then. The writer opens two
logs the way a broker does: `t-0`, to which it appends numbered batches of an idempotent producer, and `c-0`, compacted,
where it overwrites keys. It flushes, checkpoints, rolls, compacts, retains and now and then stops cleanly. What it
says through its pipe is what it acknowledged. The next writer checks what it finds against that before it goes on;
the parent prints one line of figures, or what was lost.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.log_manager import LogManager
from anabranch.broker.storage.os_files import OsFiles
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.record import iter_records

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
PRODUCER = 7
KEYS = 40
RECORDS = 3
ENOUGH_BYTES = 6_000
"""So much it says at most before it is killed, some 200 things: by work, not by time, the same on every machine."""
SILENCE_S = 60.0
CONFIGS = {
    "t": TopicConfig(segment_bytes=30_000, index_interval_bytes=500),
    "c": TopicConfig(segment_bytes=12_000, index_interval_bytes=500, cleanup_policy="compact"),
}


@dataclass
class Promised:
    """What has been acknowledged."""

    end: int = 0
    newest: dict[bytes, int] = field(default_factory=dict)
    did: Counter[str] = field(default_factory=Counter)


def manager(directory: str) -> tuple[LogManager, PartitionLog, PartitionLog]:
    logs = LogManager(OsFiles(directory), BrokerSettings(), CONFIGS.__getitem__, lambda: NOW_MS)
    logs.load_checkpoints()
    return logs, logs.open("t", 0, TOPIC_ID), logs.open("c", 0, TOPIC_ID)


def records_of(log: PartitionLog, offset: int) -> list[tuple[int, bytes, bytes]]:
    found = []
    while data := log.read(offset, 1 << 20):
        for position, header in iter_batches(data):
            for record in iter_records(data, position):
                assert record.key is not None
                assert record.value is not None
                found.append((record.offset, record.key, record.value))
            offset = header.next_offset
    return found


def check(plain: PartitionLog, compacted: PartitionLog, promised: Promised, *, everything: bool) -> None:
    """Whether the logs hold what was promised; the plain one is read as a whole only now and then."""
    assert plain.log_end_offset >= promised.end, f"the log ends at {plain.log_end_offset}, acknowledged {promised.end}"
    first = plain.log_start_offset if everything else max(plain.log_start_offset, promised.end - 500)
    found = records_of(plain, first)
    begins = first - first % RECORDS  # a batch is read as a whole
    expected = [(offset, b"k", b"%d" % offset) for offset in range(begins, plain.log_end_offset)]
    assert found == expected, f"from {first}: {len(found)} records instead of {len(expected)}"
    entry = plain.producers.get(PRODUCER)
    assert plain.log_end_offset == 0 or (entry and entry.last_sequence == plain.log_end_offset - 1)
    newest = {key: int(value) for _, key, value in records_of(compacted, 0)}
    for key, value in promised.newest.items():
        assert newest.get(key, -1) >= value, f"{key!r} is {newest.get(key)}, acknowledged {value}"
    offsets = [offset for offset, _, _ in records_of(compacted, 0)]
    assert offsets == sorted(set(offsets))


def say(pipe: int, *what: object) -> None:
    os.write(pipe, pickle.dumps(what))


def write(directory: str, seed: int, promised: Promised, pipe: int) -> None:
    """Check, then work until the end."""
    rng = random.Random(seed)
    logs, plain, compacted = manager(directory)
    check(plain, compacted, promised, everything=rng.random() < 0.1)
    say(pipe, "opened", plain.scanned_segments + compacted.scanned_segments)
    number = max(promised.newest.values(), default=0)
    while True:
        dice = rng.random()
        if dice < 0.6:
            builder = BatchBuilder()
            first = plain.log_end_offset
            for offset in range(first, first + RECORDS):
                builder.append(b"k", b"%d" % offset, (), NOW_MS)
            info = append_as_leader(plain, builder.build(PRODUCER, 0, first), leader_epoch=first // 3000, now_ms=NOW_MS)
            say(pipe, "end", info.last_offset + 1)
        elif dice < 0.93:
            number += 1
            key = b"key-%d" % rng.randrange(KEYS)
            builder = BatchBuilder()
            builder.append(key, b"%d" % number, (), NOW_MS)
            append_as_leader(compacted, builder.build(), leader_epoch=0, now_ms=NOW_MS)
            say(pipe, "key", key, number)
        elif dice < 0.95:
            logs.flush_step()
        elif dice < 0.985:
            busy = logs.clean_step({("c", 0): compacted.log_end_offset}.__getitem__)
            say(pipe, "did", "cleaned" if busy else "nothing to clean")
        elif dice < 0.995:
            logs.checkpoint([("t", 0, plain.log_end_offset)])
        elif dice < 0.998:
            plain.increment_log_start_offset(max(plain.log_start_offset, plain.log_end_offset - 3000))
            say(pipe, "did", "retained")
        else:
            logs.close()
            say(pipe, "did", "closed")
            logs, plain, compacted = manager(directory)
            assert plain.scanned_segments + compacted.scanned_segments == 0, "after a clean stop nothing is scanned"


def child(directory: str, seed: int, promised: Promised, pipe: int) -> NoReturn:
    try:
        write(directory, seed, promised, pipe)
    except BaseException:
        say(pipe, "lost", traceback.format_exc())
    os._exit(1)


def one_round(directory: str, seed: int, promised: Promised) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        child(directory, seed, promised, writer)
    os.close(writer)
    content = b""
    enough = random.Random(seed).randrange(1, ENOUGH_BYTES)
    while len(content) < enough:
        ready, _, _ = select.select([reader], [], [], SILENCE_S)
        data = os.read(reader, 1 << 16) if ready else b""
        content += data
        if not data:
            break
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while data := os.read(reader, 1 << 16):
        content += data
    os.close(reader)
    take(content, promised)


def take(content: bytes, promised: Promised) -> None:
    """Parse the messages before the kill; the last one may be incomplete."""
    stream = io.BytesIO(content)
    while True:
        try:
            what, *rest = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return
        match what, rest:
            case "end", [int(end)]:
                promised.end = end
            case "key", [bytes(key), int(number)]:
                promised.newest[key] = number
            case "opened", [int(scanned)]:
                promised.did["opened"] += 1
                promised.did["scanned segments"] += scanned
            case "did", [str(did)]:
                promised.did[did] += 1
            case _:
                raise SystemExit(f"{what}: {rest[0]}")


def main() -> None:
    directory, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    Path(directory).mkdir(parents=True, exist_ok=True)
    promised = Promised()
    began = time.monotonic()
    for number in range(rounds):
        one_round(directory, seed * 1000 + number, promised)
    _, plain, compacted = manager(directory)
    check(plain, compacted, promised, everything=True)
    did = ", ".join(f"{count} {what}" for what, count in sorted(promised.did.items()))
    print(
        f"{rounds} kills, {promised.end} records and {max(promised.newest.values())} values acknowledged, "
        f"none lost; {did}; {time.monotonic() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
