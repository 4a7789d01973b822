"""Share sessions: the partitions that a group member reads from this broker, and the session's epoch.

A session belongs to a group, a member and a connection. A member opens it with epoch 0 and closes it with -1; in
between each request of either API has the next epoch, so a duplicate request is detected. The end of a session releases
what the member had acquired. Pure. Source: KIP-932; Kafka's `ShareSessionCache`, `SharePartitionManager` (`newContext`,
`acknowledgeSessionUpdate`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from anabranch.protocol.errors import ErrorCode, KafkaError

OPEN_EPOCH: Final = 0
CLOSE_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1

PartitionId = tuple[bytes, int]
"""Topic id and partition."""


class ShareSession:
    """One share session."""

    __slots__ = ("epoch", "group", "loading", "member", "owner", "partitions", "turn", "unread")

    def __init__(self, group: str, member: str, owner: object) -> None:
        self.group = group
        self.member = member
        self.owner = owner
        """The address and port of the client that opened it."""
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions: dict[PartitionId, None] = {}
        self.unread: set[PartitionId] = set()
        """Partitions that were added and have not been read yet."""
        self.loading: dict[PartitionId, Any] = {}
        """The futures of partitions that are being loaded for this session."""
        self.turn = 0

    def update(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        """Add and remove partitions of the session."""
        for one in added:
            if one not in self.partitions:
                self.partitions[one] = None
                self.unread.add(one)
        for one in forgotten:
            self.partitions.pop(one, None)
            self.unread.discard(one)

    def rotate(self) -> list[PartitionId]:
        """Return the partitions, starting with another one each time, so that each is served."""
        order = list(self.partitions)
        if not order:
            return order
        self.turn += 1
        at = self.turn % len(order)
        return order[at:] + order[:at]


class ShareSessions:
    """The share sessions of one broker."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member: str, owner: object, limit: int) -> ShareSession:
        """Open a session, replacing the member's previous one. Raises SHARE_SESSION_LIMIT_REACHED."""
        if (group, member) not in self._sessions and len(self._sessions) >= limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"the maximum of {limit} share sessions is reached")
        session = self._sessions[group, member] = ShareSession(group, member, owner)
        return session

    def admit(self, group: str, member: str, epoch: int) -> ShareSession:
        """Return the session of a request and advance its epoch.

        With `CLOSE_EPOCH` it stays open until `close`: the request's acknowledgements come first. Raises
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group, member))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"{member} of {group} has no share session")
        if epoch == CLOSE_EPOCH:
            return session
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"{member} of {group}: epoch {epoch}, expected {session.epoch}"
            )
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session

    def close(self, session: ShareSession) -> None:
        """Close a session, unless it has ended or was replaced."""
        if self.is_open(session):
            del self._sessions[session.group, session.member]

    def is_open(self, session: ShareSession) -> bool:
        """Return whether a session is open and has not been replaced."""
        return self._sessions.get((session.group, session.member)) is session

    def has(self, group: str) -> bool:
        """Return whether any member of a group has a session."""
        return any(known == group for known, _ in self._sessions)

    def leave(self, owner: object) -> list[ShareSession]:
        """End and return the sessions of a closed connection."""
        ended = [one for one in self._sessions.values() if one.owner == owner]
        for one in ended:
            del self._sessions[one.group, one.member]
        return ended
