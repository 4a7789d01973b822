"""The metrics of an audit behind `--metrics-port`: families whose values are read at each scrape."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from anabranch.audit.audit_snapshot import AuditSnapshot
from anabranch.broker.metrics.endpoint import Endpoint, FamilySamples
from anabranch.broker.metrics.family import COUNTER, GAUGE, HISTOGRAM, Family
from anabranch.broker.metrics.histogram import Histogram
from anabranch.spark_jobs.tallies import HandOff
from anabranch.spark_jobs.verdict import COUNTED, EVENTS, KINDS

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def hand_offs(snapshot: AuditSnapshot) -> Iterator[tuple[Mapping[str, str], Histogram]]:
    """How long keys waited in hand-offs."""
    for kind in ("split", "merge"):
        lengths = Histogram(SECONDS)
        for found in snapshot.hand_offs:
            if found.kind == kind:
                lengths.observe(found.took_ms / 1000)
        yield {"kind": kind}, lengths


def newest(hand_offs: Iterable[HandOff]) -> float:
    """The end of the last hand-off, in seconds since 1970; 0 without one."""
    return max((found.ended_ms / 1000 for found in hand_offs), default=0.0)


FAMILIES: Final[tuple[Family[AuditSnapshot], ...]] = (
    Family(
        "audit_deliveries_total",
        COUNTER,
        "Deliveries judged, by verdict.",
        lambda snapshot: [({"what": name}, snapshot.judgement.get(name, 0)) for name in COUNTED if name != EVENTS],
    ),
    Family(
        "audit_violations",
        GAUGE,
        "Violations, by kind. Records that count as lost may still be delivered.",
        lambda snapshot: [({"kind": kind}, snapshot.judgement.get(kind, 0)) for kind in KINDS],
    ),
    Family("audit_keys", GAUGE, "Keys with at least one delivery.", lambda snapshot: snapshot.judgement.get("keys", 0)),
    Family(
        "audit_forgotten_keys_total",
        COUNTER,
        "Keys without deliveries for so long that the audit has forgotten them.",
        lambda snapshot: snapshot.judgement.get("forgotten", 0),
    ),
    Family(
        "audit_waiting_records",
        GAUGE,
        "Stored records that are not delivered yet, over all groups (with --expect).",
        lambda snapshot: snapshot.judgement.get("waiting", 0),
    ),
    Family(
        "audit_passed_records",
        GAUGE,
        "Undelivered records whose group has delivered later records of the partition.",
        lambda snapshot: snapshot.judgement.get("passed", 0),
    ),
    Family(
        "audit_records_total",
        COUNTER,
        "Records read by the audit since it started.",
        lambda snapshot: snapshot.records,
    ),
    Family(
        "audit_behind_records",
        GAUGE,
        "Records of the audit topic that are not judged.",
        lambda snapshot: snapshot.behind,
    ),
    Family(
        "audit_delivered_timestamp_seconds",
        GAUGE,
        "The time of the newest judged delivery.",
        lambda snapshot: snapshot.delivered_ms / 1000,
    ),
    Family(
        "audit_batches_total", COUNTER, "Batches since the start of the audit.", lambda snapshot: len(snapshot.progress)
    ),
    Family(
        "audit_batch_seconds",
        GAUGE,
        "Duration of the newest batch.",
        lambda snapshot: snapshot.progress[-1].duration_ms / 1000 if snapshot.progress else 0.0,
    ),
    Family(
        "audit_state_bytes",
        GAUGE,
        "Memory of Spark's state stores.",
        lambda snapshot: snapshot.progress[-1].state_bytes if snapshot.progress else 0,
    ),
    Family(
        "audit_hand_off_seconds",
        HISTOGRAM,
        "From the last delivery of moved keys in the old partitions to the first in the new one.",
        hand_offs,
    ),
    Family(
        "audit_hand_off_timestamp_seconds",
        GAUGE,
        "The end of the newest hand-off.",
        lambda snapshot: newest(snapshot.hand_offs),
    ),
)


def families(snapshot: AuditSnapshot) -> Iterator[FamilySamples]:
    """All families with their current values."""
    for family in FAMILIES:
        samples = (({"topic": snapshot.topic, **labels}, value) for labels, value in family.samples(snapshot))
        yield family.full_name, family.kind, family.help, samples


@contextlib.contextmanager
def expose(snapshot: AuditSnapshot, host: str, port: int) -> Iterator[str]:
    """Serve Prometheus while the block runs, on a thread with its own loop. Yields the URL.

    The audit has no event loop, because it waits for Spark most of the time. It replaces the data that this thread
    reads as a whole. Raises OSError if the port is taken.
    """
    loop = asyncio.new_event_loop()
    endpoint = Endpoint(host, port, lambda: families(snapshot))
    try:
        loop.run_until_complete(endpoint.start())
        thread = threading.Thread(target=loop.run_forever, name="metrics")
        thread.start()
        try:
            yield endpoint.url
        finally:
            asyncio.run_coroutine_threadsafe(endpoint.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
    finally:
        loop.close()
