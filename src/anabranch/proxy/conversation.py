"""What to do with each frame of one connection through a proxy, in both directions: bytes in, bytes out. Pure.

Requests pass, or are intercepted whole: then somebody else says what is asked of the upstream, if anything, and what is
answered. Answers pass, or are gathered to put other addresses into them. Order is kept in both directions: a request
that was intercepted holds up those behind it until it was sent on or is answered, and answers leave in the order of
their requests, whoever gave them.

What cannot be understood is a `DecodeError`: it ends this connection, and no other.
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
"""Stands for a token of SASL without a header: what follows the first version of SaslHandshake."""

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


class Handling(enum.Enum):
    """What becomes of a request and its answer."""

    PASS = "both pass"
    READ = "the request passes, the answer is read"
    INTERCEPT = "both are given to somebody else"
    ANSWER = "it is answered here, and not passed on"


class FrameHandler(Protocol):
    """Knows what is to be done."""

    def handling_of(self, head: RequestHeader) -> Handling:
        """What becomes of a request."""

    def rewritten(self, head: RequestHeader, frame: bytes) -> bytes:
        """An answer as the client gets it. Raises DecodeError."""

    def own_answer(self, head: RequestHeader) -> bytes:
        """The answer to what is answered here."""


class Slot:
    """One request that waits for its answer."""

    __slots__ = ("answered", "begun", "done", "frame", "head", "how", "outcome", "read", "request", "sent", "waiter")

    def __init__(self, head: RequestHeader, how: Handling, frame: bytes = b"") -> None:
        self.head = head
        self.how = how
        self.frame = frame
        """Of an intercepted request: what has come, without its length."""
        self.sent = how in (Handling.PASS, Handling.READ)
        """Whether something was asked of the upstream."""
        self.answered = False
        """Whether the upstream has answered."""
        self.done = how is Handling.ANSWER
        """Whether it is known what the client gets."""
        self.request: Any = None
        self.outcome: Any = None
        self.begun: Any = None
        self.waiter: Any = None
        self.read: Any = None
        """Of who intercepts: not looked at here."""


class Conversation:
    """One connection of a client, and the one to the upstream that belongs to it."""

    def __init__(self, judge: FrameHandler, request_bytes_max: int, answer_bytes_max: int) -> None:
        self.asked = FrameStream(request_bytes_max)
        self.answers = FrameStream(answer_bytes_max)
        self.slots: deque[Slot] = deque()
        """What is not answered yet, in the order in which it was asked."""
        self.to_client: list[Buffer] = []
        self.to_upstream: list[Buffer] = []
        """What is to be written. The caller empties both."""
        self._judge = judge
        self._coming: Slot | None = None
        self._barrier: Slot | None = None
        self._opened_answer = False
        self._tokens = False

    @property
    def blocked(self) -> bool:
        """Whether a request that was intercepted holds up those behind it."""
        barrier = self._barrier
        if barrier is not None and (barrier.sent or barrier.done):
            self._barrier = barrier = None
        return barrier is not None

    # --- requests

    def next_request(self) -> Slot | None:
        """Pass on what has come of requests, up to one that is to be intercepted. Raises DecodeError."""
        asked = self.asked
        try:
            while not self.blocked:
                if self._coming is not None:
                    frame = asked.gathered()
                    if frame is None:
                        return None
                    slot, self._coming = self._coming, None
                    slot.frame = frame
                    self.slots.append(slot)
                    if slot.how is Handling.ANSWER:
                        continue
                    self._barrier = slot
                    return slot
                if asked.passing():
                    return None
                if not self._open_request():
                    return None
            return None
        finally:
            self._take(asked, self.to_upstream)

    def _open_request(self) -> bool:
        """Decide about the next request; False if more of it is needed for that."""
        opened = self.asked.opened()
        if opened is None:
            return False
        if self._tokens:
            if not is_plausible(*opened):
                self.slots.append(Slot(TOKEN, Handling.PASS))
                self.asked.let_pass()
                return True
            self._tokens = False
        head = read_request_header(*opened)
        if head is None:
            return False
        how = self._judge.handling_of(head)
        if how in (Handling.PASS, Handling.READ):
            self.asked.let_pass()
            if head.answered:
                self.slots.append(Slot(head, how))
        else:
            self._take(self.asked, self.to_upstream)
            self.asked.gather()
            self._coming = Slot(head, how)
        return True

    def send(self, slot: Slot, chunks: Sequence[Buffer]) -> None:
        """Ask the upstream what belongs to an intercepted request: a whole frame."""
        slot.sent = True
        self.to_upstream += chunks

    # --- answers

    def next_answer(self) -> tuple[Slot, bytes] | None:
        """Pass on what has come of answers, up to that of an intercepted request, or up to one that has to wait.

        Raises DecodeError.
        """
        answers = self.answers
        try:
            while True:
                if self.slots and self.slots[0].how is Handling.ANSWER:
                    self._take(answers, self.to_client)
                    self.to_client += framed(self._judge.own_answer(self.slots.popleft().head))
                    continue
                if not self.slots:
                    if answers.held_bytes:
                        raise DecodeError("an answer, but nothing was asked")
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
                    self.to_client += framed(frame)
        finally:
            self._take(answers, self.to_client)

    def _pass_answer(self, slot: Slot) -> bool:
        """Let an answer pass as far as it has come; whether it has passed whole."""
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
        """An answer as the client gets it; None until it has come whole."""
        answers = self.answers
        if not answers.is_gathering:
            if not self._check(slot):
                return None
            self._take(answers, self.to_client)
            answers.gather()
        frame = answers.gathered()
        if frame is None:
            return None
        head = slot.head
        if head.key == SASL_HANDSHAKE and head.version == 0 and frame[4:6] == b"\0\0":
            self._tokens = True
        return self._judge.rewritten(head, frame)

    def _check(self, slot: Slot) -> bool:
        """Whether enough has come to see that this is the answer to the oldest request. Raises DecodeError."""
        opened = self.answers.opened()
        if opened is None:
            return False
        buffer, start, end = opened
        if slot.head is TOKEN:
            return True
        if end - start < 4:
            raise DecodeError("an answer without a correlation id", buffer=buffer, position=start)
        if len(buffer) - start < 4:
            return False
        found = _int32.unpack_from(buffer, start)[0]
        if found != slot.head.correlation_id:
            raise DecodeError(f"answer {found} instead of {slot.head.correlation_id}", buffer=buffer, position=start)
        return True

    def close(self, slot: Slot, chunks: Sequence[Buffer]) -> None:
        """Answer an intercepted request, which has come to the front."""
        assert slot is self.slots[0], "answers leave in the order of their requests"
        self.slots.popleft()
        self.to_client += chunks

    @staticmethod
    def _take(stream: FrameStream, out: list[Buffer]) -> None:
        passed = stream.take_passed()
        if passed:
            out.append(passed)


def framed(frame: bytes) -> list[Buffer]:
    """A frame behind its length."""
    return [_int32.pack(len(frame)), frame]
