"""Follows a running query: derives the audit's current state from Spark's progress reports and the batches' files."""

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

ASK_TIMEOUT_S: Final = 2.0
WAITING: Final = "Waiting for"
"""The beginning of Spark's status message for an idle query."""


class Follower:
    """Updates the state of one audit on request."""

    def __init__(
        self, target: audit.Target, query: Callable[[], Any], snapshot: AuditSnapshot, clock_ms: Callable[[], int]
    ) -> None:
        """`query` returns the current query: a failed one is replaced. The state of an audit that continues is read."""
        self._target = target
        self._query = query
        self._snapshot = snapshot
        self._clock_ms = clock_ms
        snapshot.answered_ms = clock_ms()
        self._lineages: dict[str, Lineage] = lineages.load(self._lineages_path)
        snapshot.progress = results.read_progress(target.directory / results.PROGRESS)
        if snapshot.progress:  # the audit continues; it may be long until its next batch
            self._read(0)

    @property
    def _lineages_path(self) -> Path:
        return self._target.directory / results.LINEAGES

    @property
    def has_started(self) -> bool:
        """Whether the query processes input: it has finished a batch, or is idle."""
        query = self._query()
        return query.lastProgress is not None or str(query.status["message"]).startswith(WAITING)

    def poll(self) -> None:
        """Read the changes since the last call."""
        last = self._query().lastProgress
        busy_ms = 0 if last is None else self._take(last)
        if busy_ms:
            self._read(busy_ms)
        if last is not None or not self._snapshot.progress:
            self._measure({} if last is None else progress.reached_offsets(last))

    def settle(self) -> None:
        """Read the output of the last batches, after the query's end."""
        self._read(0)

    def _take(self, last: Any) -> int:
        """Add the finished batches. Returns their total duration in ms."""
        newest = progress.of_query(last)
        if newest is None or (self._snapshot.progress and self._snapshot.progress[-1].batch >= newest.batch):
            return 0
        busy_ms = 0
        for query_progress in self._query().recentProgress:
            batch = progress.of_query(query_progress)
            if batch is not None and self._snapshot.add_progress(batch):
                results.append_progress(self._target.directory / results.PROGRESS, batch)
                busy_ms += batch.duration_ms
        return busy_ms

    def _read(self, busy_ms: int) -> None:
        self._snapshot.judge(audit.summary(self._target), busy_ms)
        counted = audit.read_ledger(self._target).total()
        self._snapshot.delivered_ms = max((one.last_ms for one in counted.key_epochs.values()), default=0)
        self._learn(counted)
        found = [
            one
            for group, topic in counted.audiences()
            if topic in self._lineages
            for one in counted.hand_offs(group, topic, self._lineages[topic])
        ]
        self._snapshot.hand_offs = sorted(found, key=lambda one: one.ended_ms)

    def _learn(self, counted: Tallies) -> None:
        """Query the topics' resizes when deliveries have unknown generations."""
        unknown = {
            topic
            for _, topic, key_epoch in counted.key_epochs
            if key_epoch.generation >= 0
            and (topic not in self._lineages or key_epoch.generation > self._lineages[topic].generation)
        }
        if not unknown:
            return
        try:
            self._lineages |= lineages.ask(self._target.servers, unknown, self._target.client, timeout_s=ASK_TIMEOUT_S)
        except (KafkaError, OSError):
            return  # retried at the next batch
        lineages.save(self._lineages_path, self._lineages)

    def _measure(self, reached: dict[tuple[str, int], int]) -> None:
        """Count the audit topic records that no batch has read yet."""
        topic = self._target.topic
        try:
            with TopicReader(self._target.servers, self._target.client, timeout_s=ASK_TIMEOUT_S) as reader:
                ends = reader.offsets(topic, LATEST)
        except (KafkaError, OSError):
            self._snapshot.silent = True
            return  # without an answer the number stays unchanged
        self._snapshot.silent, self._snapshot.answered_ms = False, self._clock_ms()
        self._snapshot.behind = sum(max(0, end - reached.get((topic, index), 0)) for index, end in ends.items())
