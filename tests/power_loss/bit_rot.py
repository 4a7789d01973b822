"""Flips single bits of the files of a log, opens it as a broker does, and compares what readers get.

    python -m tests.power_loss.bit_rot            some thousand flips, and what became of them by kind of file

`SERVED` is a batch with other bytes than were written, a wrong epoch, an aborted record that passes for committed, or a
batch that is skipped in silence: a flip must never lead to it, except where no checksum covers a byte (`NOT_CHECKED`).
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.storage.log import PartitionLog
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import BatchHeader, check_crc, iter_batches
from tests.power_loss.campaign import MEMORY
from tests.power_loss.disk import Tree, materialize, stored
from tests.power_loss.recording import record
from tests.power_loss.workloads import PROFILES, TOPIC, TOPIC_ID, LogWorkload, close_files, log_manager

NOT_CHECKED: Final = ("log: base offset, leader epoch", "leader-epoch-checkpoint")
"""What neither this project nor Kafka can check: no checksum covers it."""
NOT_COVERED: Final = (*range(8), *range(12, 16))
"""The bytes of a batch that its checksum does not cover, without the length: base offset and leader epoch."""


@dataclass(frozen=True)
class Reading:
    """What a reader of the whole log gets."""

    batches: dict[int, bytes]
    epochs: dict[int, int]
    aborted: frozenset[tuple[int, int]]
    refused: int
    """How many batches were refused as corrupt."""


OFFSETS: Final = 300
"""More than the log has."""


def read_all(log: PartitionLog) -> Reading:
    """Read a log as consumers do; behind a corrupt batch they continue at the next offset."""
    batches: dict[int, bytes] = {}
    offset, refused = log.log_start_offset, 0
    while offset < min(log.log_end_offset, OFFSETS):
        try:
            data = bytes(log.read(offset, 1, min_one_batch=True))
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE, error
            refused += 1
            data = b""
        offset += 1
        for at, header in iter_batches(data):
            batches[header.base_offset] = data[at : at + header.size_bytes]
            offset = max(offset, header.next_offset)
    epochs = {base: log.epochs.epoch_for(base) for base in batches}
    aborted = frozenset((one.producer_id, one.last_offset) for one in log.producers.aborted)
    return Reading(batches, epochs, aborted, refused)


def written_log(seed: int, root: Path) -> tuple[Tree, Tree, Reading]:
    """The files of a log that was stopped cleanly, those of one that was killed before, and what it holds."""
    live = root / "live"
    live.mkdir()
    with record(live) as recorder:
        story = LogWorkload(live, PROFILES["transactions"], random.Random(seed), recorder)
        story.run()
    killed = stored(live)
    logs = log_manager(live, story.profile)
    reading = read_all(logs.open(TOPIC, 0, TOPIC_ID))
    logs.checkpoint([(TOPIC, 0, story.expected.flushed)])
    logs.close()
    close_files(logs)
    return stored(live), killed, reading


def flipped(tree: Tree, path: tuple[str, ...], at: int, bit: int) -> Tree:
    """The files with one other bit."""
    name, *rest = path
    one = tree[name]
    if isinstance(one, dict):
        return tree | {name: flipped(one, tuple(rest), at, bit)}
    content = bytearray(one)
    content[at] ^= 1 << bit
    return tree | {name: bytes(content)}


def files_of(tree: Tree, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], bytes]]:
    """All files that are not empty."""
    found = []
    for name, one in sorted(tree.items()):
        if isinstance(one, dict):
            found += files_of(one, (*above, name))
        elif one:
            found.append(((*above, name), one))
    return found


def covered(content: bytes, at: int) -> bool:
    """Whether a checksum covers a byte of a segment file."""
    return not any(
        position <= at < position + header.size_bytes and at - position in NOT_COVERED
        for position, header in iter_batches(content)
    )


def outcome(root: Path, good: Reading) -> str:
    """Open what is there, and say what a reader notices: nothing, less, a refusal, or something wrong."""
    try:
        logs = log_manager(root, PROFILES["transactions"])
        log = logs.open(TOPIC, 0, TOPIC_ID)
    except (ConfigError, KafkaError):
        return "the start is refused"
    found = read_all(log)
    close_files(logs)
    for base, data in found.batches.items():
        header = next(iter(iter_batches(data)))[1]
        if good.batches.get(base) != data or not check_crc(data, 0, header):
            return "SERVED: another batch"
        if found.epochs[base] != good.epochs[base]:
            return "SERVED: another leader epoch"
        if hidden(good, header, log.log_end_offset) and not hidden(found, header, log.log_end_offset):
            return "SERVED: an aborted record as committed"
    if found.refused:
        return "refused to readers"
    if any(base not in found.batches and base < max(found.batches, default=0) for base in good.batches):
        return "SERVED: later batches without an earlier one"
    if len(found.batches) < len(good.batches):
        return "cut off, to be fetched again"
    return "no effect on readers"


def hidden(reading: Reading, header: BatchHeader, end: int) -> bool:
    """Whether a batch belongs to an aborted transaction whose marker is in the log."""
    markers = sorted(marker for pid, marker in reading.aborted if pid == header.producer_id and marker < end)
    return header.is_transactional and not header.is_control and any(header.base_offset < one for one in markers[:1])


def play(seed: int, flips: int) -> Counter[tuple[str, str, str]]:
    """Flip so many bits, one at a time; count by state of the log, kind of file and outcome."""
    found: Counter[tuple[str, str, str]] = Counter()
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=str(MEMORY) if MEMORY.is_dir() else None) as directory:
        root = Path(directory).resolve()
        clean, killed, good = written_log(seed, root)
        for number in range(flips):
            state, tree = ("killed", killed) if number % 2 else ("stopped", clean)
            path, content = rng.choice(files_of(tree))
            at = rng.randrange(len(content))
            kind = path[-1].rpartition(".")[2] if path[-1][0].isdigit() else path[-1]
            if kind == "log" and not covered(content, at):
                kind = "log: base offset, leader epoch"
            left = root / "left"
            left.mkdir()
            materialize(flipped(tree, path, at, rng.randrange(8)), left)
            found[state, kind, outcome(left, good)] += 1
            shutil.rmtree(left)
    return found


def main() -> int:
    """Print a table; return the exit status."""
    logging.disable(logging.CRITICAL)
    total: Counter[tuple[str, str, str]] = Counter()
    for seed in range(4):
        total += play(seed, 300)
    print("| log | file | outcome | flips |\n|---|---|---|---:|")
    for (state, kind, what), times in sorted(total.items()):
        print(f"| {state} | {kind} | {what} | {times} |")
    guilty = [what for _, kind, what in total if what.startswith("SERVED") and kind not in NOT_CHECKED]
    return 1 if guilty else 0


if __name__ == "__main__":
    sys.exit(main())
