"""Audits on request: a long-lived process that is told on standard input what to audit, and says what it finds.

In, one JSON object per line:            Out, one JSON object per line:
    {"audit": TOPIC, "expect": TOPIC}        {"event": "ready"}
    {"finish": TOPIC}                        {"event": "progress", "topic": ..., "delivered": ..., ...}
                                             {"event": "verdict", "topic": ..., "verdict": {...}}

Spark takes seconds to start and is shared by all audits. `finish` judges what is in the audit topic by then, and compares
it with what the expected topic stores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import audit, checks


def say(event: str, **facts: Any) -> None:
    """One JSON line for whoever started us."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


class AuditService:
    """The running audits of one session."""

    def __init__(self, session: SparkSession, servers: str, directory: Path) -> None:
        self._session = session
        self._servers = servers
        self._directory = directory
        self._running: dict[str, tuple[audit.Target, StreamingQuery, str | None]] = {}
        self.judgements: dict[str, dict[str, int]] = {}

    def begin(self, topic: str, expect: str | None) -> None:
        """Start the audit of a topic, or continue it where its checkpoint stands."""
        target = audit.Target(self._servers, topic, self._directory / topic)
        query = audit.start(self._session, target, lambda facts: say("progress", topic=topic, **facts))
        self._running[topic] = (target, query, expect)

    def finish(self, topic: str) -> dict[str, int]:
        """Take in everything that the audit topic holds by now, stop, and judge."""
        target, query, expect = self._running.pop(topic)
        query.processAllAvailable()
        query.stop()
        stored, distinct = audit.stored(self._session, self._servers, expect) if expect else (None, None)
        judgement = checks.verdict(audit.summary(target), stored=stored, stored_distinct=distinct)
        self.judgements[topic] = judgement
        return judgement

    def stop(self) -> None:
        """Stop what still runs, without judging it."""
        for _, query, _ in self._running.values():
            query.stop()
        self._running.clear()


def serve(service: AuditService, lines: Iterable[str]) -> None:
    """Work through commands until there are no more."""
    say("ready")
    for line in lines:
        if not line.strip():
            continue
        command = json.loads(line)
        if "audit" in command:
            service.begin(command["audit"], command.get("expect"))
        elif "finish" in command:
            say("verdict", topic=command["finish"], verdict=service.finish(command["finish"]))
        else:
            say("error", text=f"neither audit nor finish: {line.strip()}")
