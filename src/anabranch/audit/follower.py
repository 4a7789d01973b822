"""Follows a running query: makes the audit's present state of Spark's progress reports and the batches' files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from anabranch.audit import results
from anabranch.audit.audit_snapshot import AuditSnapshot
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.lineage import Lineage
from anabranch.spark_jobs import audit, lineages, progress
from anabranch.spark_jobs.reader import LATEST, TopicReader
from anabranch.spark_jobs.tallies import Tallies

ASK_PATIENCE_S: Final = 2.0
WAITING: Final = "Waiting for"
"""How Spark's status message of a query begins that has nothing to do."""


class Follower:
    """Looks at one audit whenever it is asked to."""

    def __init__(
        self, target: audit.Target, query: Callable[[], Any], sight: AuditSnapshot, clock_ms: Callable[[], int]
    ) -> None:
        """`query` returns the query that does the audit now: a failed one is replaced."""
        self._target = target
        self._query = query
        self._sight = sight
        self._clock_ms = clock_ms
        sight.answered_ms = clock_ms()
        self._lineages: dict[str, Lineage] = lineages.load(self._lineages_path)

    @property
    def _lineages_path(self) -> Path:
        return self._target.directory / results.LINEAGES

    @property
    def begun(self) -> bool:
        """Whether the query takes in what comes: it has done a batch, or would if there were anything."""
        query = self._query()
        return query.lastProgress is not None or str(query.status["message"]).startswith(WAITING)

    def look(self) -> None:
        """Read what has happened since the last call."""
        last = self._query().lastProgress
        busy_ms = 0 if last is None else self._take(last)
        if busy_ms:
            self._read(busy_ms)
        self._measure({} if last is None else progress.reached(last))

    def settle(self) -> None:
        """Read what the last batches wrote, when the query has ended."""
        self._read(0)

    def _take(self, last: Any) -> int:
        """Note the batches that have ended. Returns how long they took together, in ms."""
        newest = progress.of_query(last)
        if newest is None or (self._sight.progress and self._sight.progress[-1].batch >= newest.batch):
            return 0
        busy_ms = 0
        for told in self._query().recentProgress:
            batch = progress.of_query(told)
            if batch is not None and self._sight.add_progress(batch):
                results.append_progress(self._target.directory / results.PROGRESS, batch)
                busy_ms += batch.duration_ms
        return busy_ms

    def _read(self, busy_ms: int) -> None:
        self._sight.judge(audit.summary(self._target), busy_ms)
        counted = audit.read_ledger(self._target).total()
        self._sight.delivered_ms = max((one.last_ms for one in counted.segments.values()), default=0)
        self._learn(counted)
        found = [
            one
            for group, topic in counted.audiences()
            if topic in self._lineages
            for one in counted.hand_offs(group, topic, self._lineages[topic])
        ]
        self._sight.hand_offs = sorted(found, key=lambda one: one.ended_ms)

    def _learn(self, counted: Tallies) -> None:
        """Ask how topics were resized, when deliveries tell of generations that are not known."""
        unknown = {
            topic
            for _, topic, segment in counted.segments
            if segment.generation >= 0
            and (topic not in self._lineages or segment.generation > self._lineages[topic].generation)
        }
        if not unknown:
            return
        try:
            self._lineages |= lineages.ask(
                self._target.servers, unknown, self._target.client, patience_s=ASK_PATIENCE_S
            )
        except (KafkaError, OSError):
            return  # the next batch asks again
        lineages.save(self._lineages_path, self._lineages)

    def _measure(self, reached: dict[tuple[str, int], int]) -> None:
        """Count the records of the audit topic that no batch has read yet."""
        topic = self._target.topic
        try:
            with TopicReader(self._target.servers, self._target.client, patience_s=ASK_PATIENCE_S) as reader:
                ends = reader.offsets(topic, LATEST)
        except (KafkaError, OSError):
            self._sight.silent = True
            return  # a number that no broker can tell now stays what it was
        self._sight.silent, self._sight.answered_ms = False, self._clock_ms()
        self._sight.behind = sum(max(0, end - reached.get((topic, index), 0)) for index, end in ends.items())
