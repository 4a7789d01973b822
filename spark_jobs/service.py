"""An audit service: a long-lived process that reads commands from standard input and prints results.

In, one JSON object per line:            Out, one JSON object per line:
    {"audit": TOPIC, "expect": TOPIC,        {"event": "starting", "doing": ...}, {"event": "ready"}
     "groups": [GROUP, ...],
     "isolation_level": ...}
    {"finish": TOPIC}                        {"event": "progress", "topic": ..., "delivered": ..., ...}
                                             {"event": "verdict", "topic": ..., "verdict": {...},
                                              "examples": [the stories of the first violations]}
                                             {"event": "error", "topic": ..., "text": ...}

Spark takes seconds to start and is shared by all audits. `finish` judges what is in the audit topic by then, and
compares it with what the expected topic stores.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.file_paths import path_below
from anabranch.spark_jobs import audit, violations
from anabranch.spark_jobs.inputs import SourceMissing
from anabranch.spark_jobs.reader import TopicReader
from anabranch.spark_jobs.scope import FORGET_MS, READ_COMMITTED, Scope
from anabranch.spark_jobs.source import FORMAT
from anabranch.spark_jobs.source_options import ISOLATION_LEVELS, OPEN, Client
from anabranch.spark_jobs.violations import Violations

log = logging.getLogger(__name__)

LOOK_UP_TIMEOUT_S: Final = 2.0
STARTS_MAX: Final = 18
TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark's error when the Python processes of a query's driver exceed a fixed start limit of ten seconds, as on a busy
machine. Spark then ends the query, which can continue from its checkpoint."""
RESTART_POLL_S: Final = 1.0
EXAMPLES: Final = 3
"""Number of violations in a verdict; all of them are in files."""
IDENTITY: Final = "audited.json"

_raised = re.compile(
    r"^(?:(?:\w+\.)+([A-Z]\w*)|(\w*(?:Error|Exception|Gone))): (?!An exception was thrown)(.+)$", re.MULTILINE
)
"""Matches the name of an exception in a traceback, but not PySpark's wrapper, which has no reason."""


class CannotAudit(RuntimeError):
    """The audit is impossible; the message has the reason in one line."""


def say(event: str, **facts: Any) -> None:
    """Print one JSON line for the parent process."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def say_starting(doing: str) -> None:
    """Print a step of Spark's start."""
    say("starting", doing=doing)


Tell = Callable[..., None]


@dataclass
class Running:
    """One audit and its current query; a failed query is replaced."""

    target: audit.Target
    outputs: Violations
    query: StreamingQuery
    starts: int = 1


class AuditService:
    """The running audits of one session."""

    def __init__(
        self,
        session: SparkSession,
        servers: str,
        directory: Path,
        tell: Tell = say,
        source: str = FORMAT,
        *,
        fail_on_data_loss: bool = True,
        client: Client = OPEN,
    ) -> None:
        """Create a service; `tell` is called after each batch with "progress", the topic, and the current verdict;
        `client` has the security properties.
        """
        self._client = client
        self._source = source
        self._fail_on_data_loss = fail_on_data_loss
        self._session = session
        self._servers = servers
        self._directory = directory
        self._tell = tell
        self._running: dict[str, Running] = {}
        self._lock = threading.Lock()
        """Guards `_running` and its queries against the thread of `restarting`."""

    def begin(self, topic: str, scope: Scope, outputs: Violations | None = None) -> Running:
        """Start the audit of a topic, or continue it from its checkpoint. Raises CannotAudit."""
        target = self.target(topic, scope)
        claim(target)
        outputs = outputs or Violations(target.violations)
        running = Running(target, outputs, self._start(target, outputs))
        with self._lock:
            self._running[topic] = running
        return running

    def _start(self, target: audit.Target, outputs: Violations) -> StreamingQuery:
        try:
            return audit.start(
                self._session, target, lambda facts: self._tell("progress", topic=target.topic, **facts), outputs
            )
        except PySparkException as error:
            raise CannotAudit(f"the audit of {target.topic} cannot start: {cause(str(error))}") from error
        except SourceMissing as error:
            raise CannotAudit(str(error)) from error

    def target(self, topic: str, scope: Scope) -> audit.Target:
        """Return the input, rules and output directory of a topic's audit."""
        return audit.Target(
            self._servers,
            topic,
            Path(path_below(str(self._directory), topic)),
            scope,
            source=self._source,
            fail_on_data_loss=self._fail_on_data_loss,
            client=self._client,
        )

    def active(self, topic: str) -> bool:
        """Whether the audit of a topic runs; `finish` raises the error of a failed one."""
        with self._lock:
            return self._is_active(self._running[topic])

    @contextlib.contextmanager
    def restarting(self) -> Iterator[None]:
        """Restart queries that were too slow, from a separate thread, while the block runs."""
        done = threading.Event()

        def poll() -> None:
            while not done.wait(RESTART_POLL_S):
                self._restart_slow_queries()

        thread = threading.Thread(target=poll, name="query restarts", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _restart_slow_queries(self) -> None:
        with self._lock:
            for topic, running in self._running.items():
                try:
                    self._is_active(running)
                except (CannotAudit, PySparkException) as error:
                    log.warning(
                        "the audit of %s could not be restarted: %s", topic, error
                    )  # `finish` raises the reason

    def _is_active(self, running: Running) -> bool:
        return bool(running.query.isActive) or self._started_again(running, str(running.query.exception()))

    def finish(self, topic: str) -> dict[str, int]:
        """Read all current records of the topics, stop, and judge.

        Returns the verdict. Raises CannotAudit if the query failed.
        """
        with self._lock:
            running = self._running.pop(topic, None)
        if running is None:
            raise CannotAudit(f"there is no audit of {topic}")
        while True:
            try:
                running.query.processAllAvailable()
                running.query.stop()
                return audit.finish(self._session, running.target, running.outputs)
            except PySparkException as error:
                if not self._started_again(running, str(error)):
                    raise CannotAudit(f"the audit of {topic} failed: {cause(str(error))}") from error

    def examples(self, topic: str) -> list[dict[str, Any]]:
        """Return the stories of a topic's first violations."""
        found = violations.read(self.target(topic, Scope()).violations)
        return list(itertools.islice(found, EXAMPLES))

    def _started_again(self, running: Running, why: str) -> bool:
        """Restart a query that ended because the machine was too busy.

        Returns False if it ended for another reason.
        """
        if TOO_SLOW not in why or running.starts >= STARTS_MAX:
            return False
        log.info("restarting the audit of %s: %s", running.target.topic, TOO_SLOW)
        running.starts += 1
        running.query = self._start(running.target, running.outputs)
        return True


def claim(target: audit.Target) -> None:
    """Find the topics, and check that an earlier audit in the same directory used the same ones.

    Raises CannotAudit.
    """
    if target.topic == target.expect:
        raise CannotAudit(f"{target.topic} cannot be both the audit topic and the topic that it is about")
    identity: dict[str, Any] = {
        "expect": target.expect,
        **look_up(target.servers, [target.topic, target.expect], target.client),
    }
    if target.scope.groups:
        identity["--group"] = sorted(target.scope.groups)
    if target.scope.forget_ms != FORGET_MS:
        identity["--forget-after"] = target.scope.forget_ms
    if target.scope.isolation_level != READ_COMMITTED:
        identity["--isolation-level"] = target.scope.isolation_level
    path = target.directory / IDENTITY
    if not path.exists():
        target.directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(identity))
    elif json.loads(path.read_text()) != identity:
        raise CannotAudit(
            f"{target.directory} holds an audit of other topics, or with other --expect, --group, --forget-after "
            "or --isolation-level; name another directory with --out, or remove this one"
        )


def look_up(servers: str, topics: Iterable[str | None], client: Client = OPEN) -> dict[str, str]:
    """Return topic -> id; `client` has the security properties.

    Raises CannotAudit if no broker answers or a topic does not exist.
    """
    try:
        with TopicReader(servers, client, timeout_s=LOOK_UP_TIMEOUT_S) as reader:
            return {topic: reader.topic_id(topic) for topic in topics if topic is not None}
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CannotAudit(f"{servers} has no topic {error.message}") from error
        raise CannotAudit(str(error)) from error
    except OSError as error:
        raise CannotAudit(str(error)) from error
    except ValueError as error:
        raise CannotAudit(str(error)) from error


def cause(text: str) -> str:
    """Return the original error from the lines in which Spark wraps it."""
    raised = _raised.findall(text)
    full, short, message = raised[-1] if raised else ("", "", text.strip().partition("\n")[0])
    kind = full or short
    return f"{kind}: {message}" if kind else message


def serve(service: AuditService, lines: Iterable[str]) -> None:
    """Execute commands until the input ends."""
    say("ready")
    with service.restarting():
        for line in lines:
            if line.strip():
                execute(service, line)


def execute(service: AuditService, line: str) -> None:
    """Execute one command. An impossible audit is answered with an error; the process continues."""
    topic = None
    try:
        command = json.loads(line)
        if not isinstance(command, dict) or not ("audit" in command or "finish" in command):
            raise CannotAudit(f"unknown command, expected audit or finish: {line.strip()}")
        topic = str(command.get("audit", command.get("finish")))
        if "audit" in command:
            level = command.get("isolation_level", READ_COMMITTED)
            if level not in ISOLATION_LEVELS:
                raise CannotAudit(f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {level!r}")
            groups = command.get("groups", [])
            if not isinstance(groups, list) or not all(isinstance(one, str) for one in groups):
                raise CannotAudit(f'groups is a list such as ["billing"], not {groups!r}')
            service.begin(topic, Scope(command.get("expect"), tuple(sorted(set(groups))), isolation_level=level))
        else:
            verdict = service.finish(topic)
            say("verdict", topic=topic, verdict=verdict, examples=service.examples(topic))
    except (CannotAudit, ValueError) as error:
        say("error", topic=topic, text=str(error))
