"""The order audit on local[2]: deliveries per second, latency from delivery to verdict, and memory per key.

The audit topic is written here in the consumers' format (runs of events per bucket), so only Spark is measured. A first
part warms the query up; the rate is that of the later batches, with all their costs. The peer is a plain read: the same
source in the same session, without state or checks. Latency is measured at a thousand deliveries per second with a
trigger of one second: from the newest and the oldest delivery of a batch until its verdict is in the files.

    python -m benchmarks.audit [--records 1000000]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from anabranch.protocol import audit as wire
from anabranch.protocol import audit_mark
from anabranch.protocol.audit import BUCKETS, EVENT, Place, Sender
from anabranch.protocol.hashing import murmur2
from anabranch.spark_jobs import audit, stages
from anabranch.spark_jobs.session import AuditSpark
from anabranch.spark_jobs.source import FORMAT
from benchmarks.peers import QUIET, running
from benchmarks.report import Figure, console, median, summary, table, times, working

RECORDS: Final = 1_000_000
WARM_UP: Final = 0.2
"""The share of the records that is read first."""
FEW: Final = 1_000
MANY: Final = 200_000
AIMS: Final = {FEW: 100_000, MANY: 75_000}
LATENCY_AIM_S: Final = 3.0
LATENCY_S: Final = 20.0
PER_SECOND: Final = 1_000
RUN: Final = 500
"""Events per run: as of a consumer that reads a thousand records or more per second."""
PARTITIONS: Final = (1, 2, 4)
WAIT_S: Final = 30.0
SENDER: Final = Sender("billing", "reader-1", "orders", 0xA0D17, 1)


@dataclass
class Deliveries:
    """Writes deliveries of some keys, in turn, to one audit topic."""

    servers: str
    topic: str
    keys: int
    partitions: int
    buckets: list[list[tuple[bytes, int]]] = field(default_factory=lambda: [[] for _ in range(BUCKETS)])
    written: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    stored: int = 0
    """Records, each of which holds a run of deliveries."""

    def __post_init__(self) -> None:
        for number in range(self.keys):
            key = b"key-%07d" % number
            hashed = murmur2(key)
            self.buckets[wire.bucket_of(hashed)].append((key, hashed))
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        for created in admin.create_topics([NewTopic(self.topic, self.partitions, 1)]).values():
            created.result(WAIT_S)
        self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, **QUIET})

    def write(self, count: int) -> int:
        """Write more deliveries; returns their number."""
        share, done = max(1, count // BUCKETS), 0
        for bucket, keys in enumerate(self.buckets):
            left = share if keys else 0
            while left > 0:
                size = min(left, RUN)
                self._producer.produce(
                    self.topic,
                    key=wire.bucket_key(bucket),
                    value=self._run(bucket, keys, size),
                    partition=bucket % self.partitions,
                )
                self._producer.poll(0)
                self.stored += 1
                left, done = left - size, done + size
        if unsent := self._producer.flush(WAIT_S):
            raise RuntimeError(f"{unsent} audit records were not stored")
        return done

    def _run(self, bucket: int, keys: Sequence[tuple[bytes, int]], size: int) -> bytes:
        first = self.written[bucket]
        events, names = bytearray(), {}
        for number in range(first, first + size):
            round_, place = divmod(number, len(keys))
            key, hashed = keys[place]
            mark = audit_mark.encode(7, round_)
            # Each offset of the audited topic is delivered once: buckets take turns.
            events += EVENT.pack(number * BUCKETS + bucket, mark, bytes(8), place)
            names[place] = wire.numbered_key(place, hashed, key)
        self.written[bucket] += size
        key_names = [names[place] for place in sorted(names)]
        return wire.encode_run(SENDER, first, [Place(0, bucket, time.time_ns() // 1_000_000, size)], events, key_names)


@dataclass
class Batches:
    """The batches that a query has reported."""

    target: audit.Target
    ended: list[tuple[int, int]] = field(default_factory=list)
    """(time of the verdict, time of the newest delivery in it): times of day in ms."""

    def on_progress(self, facts: dict[str, Any]) -> None:
        """Record a finished batch."""
        now_ms = time.time_ns() // 1_000_000
        handed = audit.read_ledger(self.target).total().key_epochs.values()
        self.ended.append((now_ms, max((one.last_ms for one in handed), default=0)))


@contextmanager
def auditing(session: Any, deliveries: Deliveries, directory: Path) -> Iterator[tuple[Any, Batches]]:
    """Run a query over past and future deliveries."""
    batches = Batches(audit.Target(deliveries.servers, deliveries.topic, directory / deliveries.topic))
    query = audit.start(session, batches.target, batches.on_progress)
    try:
        yield query, batches
    finally:
        query.stop()


@dataclass(frozen=True)
class Rate:
    """The rate of one query."""

    audited: float
    plain: float
    state_bytes_per_key: float


def rate(session: Any, servers: str, directory: Path, keys: int, partitions: int, records: int) -> Rate:
    """Deliveries per second, with the audit and with a plain read."""
    deliveries = Deliveries(servers, f"audit-{keys}-{partitions}", keys, partitions)
    deliveries.write(round(records * WARM_UP))
    with auditing(session, deliveries, directory) as (query, batches):
        query.processAllAvailable()
        warm = query.lastProgress["batchId"]
        count = deliveries.write(round(records * (1 - WARM_UP)))
        query.processAllAvailable()
        progress = [one for one in query.recentProgress if one["batchId"] > warm and one["numInputRows"]]
        busy_s = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
        seen = audit.summary(batches.target)
    if seen["delivered"] != sum(deliveries.written) or seen["out_of_order"] or seen["lost"] or seen["repeated"]:
        raise RuntimeError(f"the audit of a clean topic of {sum(deliveries.written)} says {seen}")
    state = session.read.format("statestore").option("path", str(batches.target.checkpoint))
    packed = state.option("stateVarName", stages.STATE).load().selectExpr("sum(length(value.packed)) as bytes")
    plain_s = min(plain_read_s(session, servers, deliveries.topic) for _ in range(2))
    return Rate(
        audited=count / busy_s,
        plain=sum(deliveries.written) / plain_s,
        state_bytes_per_key=packed.collect()[0]["bytes"] / min(keys, seen["keys"]),
    )


def plain_read_s(session: Any, servers: str, topic: str) -> float:
    """The duration of a plain read, in seconds."""
    started_s = time.perf_counter()
    frame = session.read.format(FORMAT).option("bootstrap.servers", servers).option("subscribe", topic).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started_s


def latency(session: Any, servers: str, directory: Path, seconds: float) -> tuple[list[float], list[float]]:
    """Latency from delivery to verdict in seconds, per batch: of its newest and its oldest delivery."""
    deliveries = Deliveries(servers, "audit-latency", FEW, 4)
    deliveries.write(PER_SECOND)
    with auditing(session, deliveries, directory) as (query, batches):
        query.processAllAvailable()
        warm = len(batches.ended)
        started_s = time.perf_counter()
        written = 0
        while (elapsed := time.perf_counter() - started_s) < seconds:
            due = int(elapsed * PER_SECOND) - written
            written += deliveries.write(due) if due >= BUCKETS else 0
            time.sleep(0.02)
        query.processAllAvailable()
        ended = batches.ended[warm - 1 :]
    pairs = list(itertools.pairwise(ended))
    newest = [(at - its) / 1000 for _, (at, its) in pairs]
    # The oldest delivery of a batch follows the newest one of the previous batch; the warm-up is older than any.
    oldest = [(at - before) / 1000 for (_, before), (at, _) in pairs[1:]]
    return newest, oldest or newest


def measure(records: int = RECORDS, seconds: float = LATENCY_S) -> list[Figure]:
    rates: dict[tuple[int, int], Rate] = {}
    with working("the order audit") as status, running("anabranch") as peer, tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with AuditSpark(directory, master="local[2]") as session:
            status.update("the order audit: warming up")
            rate(session, peer.bootstrap, directory, BUCKETS, 4, records // 20)
            for keys, partitions in [(FEW, 4), (MANY, 4), *((FEW, one) for one in PARTITIONS if one != 4)]:
                status.update(f"the order audit: {keys:,} keys, {partitions} input partitions")
                rates[keys, partitions] = rate(session, peer.bootstrap, directory, keys, partitions, records)
            status.update("the order audit: latency")
            newest, oldest = latency(session, peer.bootstrap, directory, seconds)
    table(
        f"order audit: {records:,} deliveries in runs of {RUN}, local[2], batches after the first",
        *("keys", "input partitions", "audited/s", "plain read/s", "ratio", "state, bytes a key"),
        rows=[
            (
                f"{keys:,}",
                str(partitions),
                f"{one.audited:,.0f}",
                f"{one.plain:,.0f}",
                times(one.audited, one.plain),
                f"{one.state_bytes_per_key:,.0f}",
            )
            for (keys, partitions), one in sorted(rates.items())
        ],
        note="a plain read takes no run apart: it is what the source alone costs",
    )
    figures = [
        Figure(
            f"order audit, {keys:,} keys",
            f"> {AIMS[keys]:,}/s",
            f"{rates[keys, 4].audited:,.0f}/s, {rates[keys, 4].state_bytes_per_key:,.0f} bytes a key",
            f"plain read {rates[keys, 4].plain:,.0f}/s ({times(rates[keys, 4].audited, rates[keys, 4].plain)})",
            rates[keys, 4].audited > AIMS[keys],
        )
        for keys in (FEW, MANY)
    ]
    figures.append(
        Figure(
            f"from delivery to verdict, {PER_SECOND:,}/s",
            f"< {LATENCY_AIM_S:.0f} s",
            f"newest {median(newest):.2f} s, oldest {median(oldest):.2f} s (longest {max(oldest):.2f} s)",
            "trigger 1 s",
            median(oldest) < LATENCY_AIM_S,
        )
    )
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help=f"deliveries of each rate (default: {RECORDS})")
    parser.add_argument("--seconds", type=float, default=LATENCY_S, help="for how long latency is measured")
    options = parser.parse_args(arguments)
    figures = measure(options.records, options.seconds)
    console.print()
    summary(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
