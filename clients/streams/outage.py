"""How long an instance endures a cluster in trouble: brokers that are down, coordinators that load or move.

The clients repeat their requests for a minute at most. Then the instance returns to its last commit and tries again, as
Kafka Streams does for `task.timeout.ms`. An outage ends with the next commit. Pure.
"""

from __future__ import annotations

import math
from typing import Final

from anabranch.clients.authentication import AuthenticationFailed
from anabranch.protocol.errors import ErrorCode, KafkaError

OUTAGE_S: Final = 300.0
"""Kafka's default of `task.timeout.ms`."""
FAILURES: Final = (ConnectionError, TimeoutError, KafkaError)


class Outage:
    """The present outage of one instance. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._began = self._latest = -math.inf
        self._commits = -1

    def endure(self, error: Exception, now: float, commits: int) -> None:
        """Note a failure after so many commits. Raises it if a retry cannot help, or has not for OUTAGE_S."""
        if not is_temporary(error):
            raise error
        if commits != self._commits or now - self._latest > OUTAGE_S:
            self._began, self._commits = now, commits
        self._latest = now
        if now - self._began > OUTAGE_S:
            raise error


def is_temporary(error: Exception) -> bool:
    """Whether the same request may succeed later. A damaged record stays damaged."""
    if isinstance(error, KafkaError):
        return error.code.retriable and error.code is not ErrorCode.CORRUPT_MESSAGE
    return isinstance(error, ConnectionError | TimeoutError) and not isinstance(error, AuthenticationFailed)
