"""Topic names by id, learned from passing Metadata responses. Pure.

A large response is decoded only when an unknown id is looked up, which most proxies never need.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from anabranch.protocol.connection import decode_response
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import BY_NAME

METADATA: Final = BY_NAME["Metadata"]
FIRST_WITH_IDS: Final = 10
READ_AT_ONCE_BYTES: Final = 1 << 16
UNREAD_MAX: Final = 4
NAMES_MAX: Final = 200_000


class TopicNames:
    """Topic id -> name, for one cluster."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._unread: deque[tuple[bytes, int]] = deque(maxlen=UNREAD_MAX)

    def learn(self, frame: bytes, version: int) -> None:
        """Store a Metadata response, without its length."""
        if version < FIRST_WITH_IDS:
            return
        if len(frame) > READ_AT_ONCE_BYTES:
            self._unread.append((frame, version))
        else:
            self._read(frame, version)

    def __call__(self, topic_id: bytes) -> str | None:
        """A topic's name; None if unknown."""
        name = self._names.get(topic_id)
        while name is None and self._unread:
            self._read(*self._unread.pop())
            name = self._names.get(topic_id)
        return name

    def _read(self, frame: bytes, version: int) -> None:
        try:
            answer = decode_response(frame, METADATA, version)
        except DecodeError:
            return  # the client will report the error
        for topic in answer.topics:
            if topic.name is not None:
                self._names.pop(topic.topic_id, None)
                self._names[topic.topic_id] = topic.name
        while len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]
