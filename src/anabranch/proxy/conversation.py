"""Decides about each frame of one proxied connection, in both directions: bytes in, bytes out. Pure.

Requests pass, or are intercepted whole: the interceptor then decides what is sent upstream and what is answered.
Responses pass, or are read whole to replace addresses. Order is kept in both directions: an intercepted request blocks
later requests until it is sent or answered, and responses leave in the order of their requests.

Undecodable bytes raise `DecodeError`, which ends this connection and no other.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.varint import Buffer
from anabranch.proxy.frame_stream import FrameStream
from anabranch.proxy.request_header import RequestHeader, is_plausible, read_request_header

SASL_HANDSHAKE: Final = 17
TOKEN: Final = RequestHeader(-1, -1, 0, None, True)
"""Stands for a SASL token without header: what follows the first version of SaslHandshake."""

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


class Handling(enum.Enum):
    """How a request and its response are handled."""

    PASS = "both pass"
    READ = "the request passes, the answer is read"
    INTERCEPT = "both are given to somebody else"
    ANSWER = "it is answered here, and not passed on"


class FrameHandler(Protocol):
    """The interface that decides how frames are handled."""

    def handling_of(self, head: RequestHeader) -> Handling:
        """Decide how a request is handled."""

    def rewrite(self, head: RequestHeader, frame: bytes) -> bytes:
        """A response with replaced addresses. Raises DecodeError."""

    def own_answer(self, head: RequestHeader) -> bytes:
        """The proxy's own response to a request."""


class Slot:
    """One request that waits for its response."""

    __slots__ = (
        "answered",
        "coroutine",
        "done",
        "frame",
        "head",
        "how",
        "outcome",
        "read",
        "request",
        "sent",
        "waiter",
    )

    def __init__(self, head: RequestHeader, how: Handling, frame: bytes = b"") -> None:
        self.head = head
        self.how = how
        self.frame = frame
        """The received frame of an intercepted request, without its length."""
        self.sent = how in (Handling.PASS, Handling.READ)
        """Whether a request was sent upstream."""
        self.answered = False
        """Whether the upstream has answered."""
        self.done = how is Handling.ANSWER
        """Whether the client's response is determined."""
        self.request: Any = None
        self.outcome: Any = None
        self.coroutine: Any = None
        self.waiter: Any = None
        self.read: Any = None
        """Data of the interceptor; unused here."""


class Conversation:
    """One client connection, with its connection to the upstream."""

    def __init__(self, judge: FrameHandler, request_bytes_max: int, answer_bytes_max: int) -> None:
        self.requests = FrameStream(request_bytes_max)
        self.answers = FrameStream(answer_bytes_max)
        self.slots: deque[Slot] = deque()
        """Unanswered requests, in order."""
        self.to_client: list[Buffer] = []
        self.to_upstream: list[Buffer] = []
        """Bytes to write. The caller empties both lists."""
        self._judge = judge
        self._coming: Slot | None = None
        self._barrier: Slot | None = None
        self._opened_answer = False
        self._tokens = False

    @property
    def blocked(self) -> bool:
        """Whether an intercepted request blocks the requests behind it."""
        barrier = self._barrier
        if barrier is not None and (barrier.sent or barrier.done):
            self._barrier = barrier = None
        return barrier is not None

    # --- requests

    def next_request(self) -> Slot | None:
        """Pass on received requests up to one that is intercepted; returns it. Raises DecodeError."""
        requests = self.requests
        try:
            while not self.blocked:
                if self._coming is not None:
                    frame = requests.take_gathered()
                    if frame is None:
                        return None
                    slot, self._coming = self._coming, None
                    slot.frame = frame
                    self.slots.append(slot)
                    if slot.how is Handling.ANSWER:
                        continue
                    self._barrier = slot
                    return slot
                if requests.passing():
                    return None
                if not self._open_request():
                    return None
            return None
        finally:
            self._take(requests, self.to_upstream)

    def _open_request(self) -> bool:
        """Decide about the next request; False if more bytes are needed."""
        opened = self.requests.next_message()
        if opened is None:
            return False
        if self._tokens:
            if not is_plausible(*opened):
                self.slots.append(Slot(TOKEN, Handling.PASS))
                self.requests.let_pass()
                return True
            self._tokens = False
        head = read_request_header(*opened)
        if head is None:
            return False
        how = self._judge.handling_of(head)
        if how in (Handling.PASS, Handling.READ):
            self.requests.let_pass()
            if head.answered:
                self.slots.append(Slot(head, how))
        else:
            self._take(self.requests, self.to_upstream)
            self.requests.gather()
            self._coming = Slot(head, how)
        return True

    def send(self, slot: Slot, chunks: Sequence[Buffer]) -> None:
        """Send the upstream request of an intercepted request: a whole frame."""
        slot.sent = True
        self.to_upstream += chunks

    # --- responses

    def next_answer(self) -> tuple[Slot, bytes] | None:
        """Pass on received responses up to that of an intercepted request, or up to one that must wait.

        Raises DecodeError.
        """
        answers = self.answers
        try:
            while True:
                if self.slots and self.slots[0].how is Handling.ANSWER:
                    self._take(answers, self.to_client)
                    self.to_client += frame_parts(self._judge.own_answer(self.slots.popleft().head))
                    continue
                if not self.slots:
                    if answers.held_bytes:
                        raise DecodeError("a response without a request")
                    return None
                slot = self.slots[0]
                if not slot.sent or slot.answered or slot.done or not slot.head.answered:
                    return None
                if slot.how is Handling.PASS:
                    if not self._pass_answer(slot):
                        return None
                else:
                    frame = self._whole_answer(slot)
                    if frame is None:
                        return None
                    if slot.how is Handling.INTERCEPT:
                        slot.answered = True
                        return slot, frame
                    self.slots.popleft()
                    self.to_client += frame_parts(frame)
        finally:
            self._take(answers, self.to_client)

    def _pass_answer(self, slot: Slot) -> bool:
        """Pass on the received part of a response; returns whether it is complete."""
        answers = self.answers
        if not self._opened_answer:
            if not self._check(slot):
                return False
            answers.let_pass()
            self._opened_answer = True
        if answers.passing():
            return False
        self._opened_answer = False
        self.slots.popleft()
        return True

    def _whole_answer(self, slot: Slot) -> bytes | None:
        """A response with replaced addresses; None until it is complete."""
        answers = self.answers
        if not answers.is_gathering:
            if not self._check(slot):
                return None
            self._take(answers, self.to_client)
            answers.gather()
        frame = answers.take_gathered()
        if frame is None:
            return None
        head = slot.head
        if head.key == SASL_HANDSHAKE and head.version == 0 and frame[4:6] == b"\0\0":
            self._tokens = True
        return self._judge.rewrite(head, frame)

    def _check(self, slot: Slot) -> bool:
        """Whether enough has arrived to check that this is the response to the oldest request. Raises DecodeError."""
        opened = self.answers.next_message()
        if opened is None:
            return False
        buffer, start, end = opened
        if slot.head is TOKEN:
            return True
        if end - start < 4:
            raise DecodeError("a response without a correlation id", buffer=buffer, position=start)
        if len(buffer) - start < 4:
            return False
        found = _int32.unpack_from(buffer, start)[0]
        if found != slot.head.correlation_id:
            raise DecodeError(f"answer {found} instead of {slot.head.correlation_id}", buffer=buffer, position=start)
        return True

    def close(self, slot: Slot, chunks: Sequence[Buffer]) -> None:
        """Answer an intercepted request at the front."""
        assert slot is self.slots[0], "responses leave in the order of their requests"
        self.slots.popleft()
        self.to_client += chunks

    @staticmethod
    def _take(stream: FrameStream, out: list[Buffer]) -> None:
        passed = stream.take_passed()
        if passed:
            out.append(passed)


def frame_parts(frame: bytes) -> list[Buffer]:
    """A frame with its length in front."""
    return [_int32.pack(len(frame)), frame]
