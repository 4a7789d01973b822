"""The partitions of clients' fetch sessions (KIP-227), learned from decoded requests. Pure.

A Fetch in a session names only changes, so its partitions are known only if all earlier requests were decoded.
"""

from __future__ import annotations

from typing import Any, Final

SESSIONS_MAX: Final = 10_000
NEW_EPOCH: Final = 0
Place = tuple[bytes | str, int]
"""Topic (id or name) and partition."""


class FetchSessions:
    """The fetch sessions at one broker."""

    def __init__(self) -> None:
        self._places: dict[int, dict[Place, None]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def places(self, session_id: int) -> list[Place]:
        """All partitions of a session; none if it is unknown."""
        return list(self._places.get(session_id, ()))

    def knows(self, request: Any) -> bool:
        """Whether the partitions of a Fetch are known."""
        return request.session_epoch <= NEW_EPOCH or request.session_id in self._places

    def on_request(self, request: Any, session_id: int) -> None:
        """Update a session by an answered Fetch: added and forgotten partitions."""
        if request.session_epoch < NEW_EPOCH:
            self._places.pop(request.session_id, None)
        if session_id == 0:
            return
        known = self._places.pop(session_id, {}) if request.session_epoch > NEW_EPOCH else {}
        for topic in request.topics:
            for one in topic.partitions:
                known[topic.topic or topic.topic_id, one.partition] = None
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                known.pop((topic.topic or topic.topic_id, partition), None)
        self._places[session_id] = known
        while len(self._places) > SESSIONS_MAX:
            del self._places[next(iter(self._places))]

    def clear(self) -> None:
        """Forget all sessions: requests are no longer decoded."""
        self._places.clear()
