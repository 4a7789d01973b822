"""Handles records that cannot be decoded, or for which an application's function raises: fail, skip, or dead-letter.

    fail          the instance ends, and says which record it was; nothing of it is committed, and the next instance
                  meets it again
    skip          the record leaves no trace but a line in the log and a count
    dead-letter   the same, and its bytes go to a topic, with headers that say where it was and why it is there

What is put aside is sent in the transaction that commits the record's offset. A skipped record is undone whole: neither
what its steps have put into stores nor what they have sent remains (Kafka Streams leaves what came before the step
that failed). Names and headers: KIP-1033, KIP-1034.
"""

from __future__ import annotations

import logging
import traceback
from typing import Final

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.serdes import Undecodable
from anabranch.protocol.records.record import Headers

log = logging.getLogger(__name__)

FAIL: Final = "fail"
SKIP: Final = "skip"
DEAD_LETTER: Final = "dead-letter"
HANDLERS: Final = (FAIL, SKIP, DEAD_LETTER)
KEY_LENGTH_MAX: Final = 100
"""The maximum length of a displayed key, in characters."""


class RecordFailed(Exception):
    """A record could not be decoded or processed, and the instance ends; the cause is the original exception."""


class Failures:
    """Handles failed records for one instance."""

    def __init__(
        self, *, deserialization_handler: str = FAIL, processing_handler: str = FAIL, dead_letter_topic: str = ""
    ) -> None:
        self._deserialization_handler = deserialization_handler
        self._processing_handler = processing_handler
        self.dead_letter_topic = dead_letter_topic
        self.dropped = 0
        """Number of skipped or dead-lettered records."""
        self.late = 0
        """Number of times that a record came after its window had closed."""

    @property
    def undoing(self) -> bool:
        """Whether a failed record's effects may have to be undone."""
        return self._processing_handler != FAIL

    def handle(self, record: ConsumerRecord, error: Exception) -> Headers | None:
        """Return a dead-lettered record's headers; None if it is skipped. Raises `RecordFailed` to end the instance."""
        undecodable = isinstance(error, Undecodable)
        cause = error.__cause__ if undecodable else error
        assert isinstance(cause, Exception), "a record that cannot be decoded has a cause"
        name, handler, step = (
            ("deserialization_handler", self._deserialization_handler, "decoded")
            if undecodable
            else ("processing_handler", self._processing_handler, "processed")
        )
        text = f"{place_of(record)} cannot be {step}: {error_text(cause)}"
        if handler == FAIL:
            if not undecodable:
                log.error("%s", text, exc_info=cause)  # the traceback in the application's code
            raise RecordFailed(f"{text} ({name}={SKIP} or {DEAD_LETTER} skips it)") from cause
        self.dropped += 1
        log.warning("%s; it is %s", text, "skipped" if handler == SKIP else f"in {self.dead_letter_topic}")
        return headers_of(record, cause) if handler == DEAD_LETTER else None

    def handle_timer(self, place: str, error: Exception) -> None:
        """Skip a timer whose function raised, or a late result; there is no record to dead-letter. Raises
        `RecordFailed` instead to end the instance.
        """
        text = f"{place} cannot be processed: {error_text(error)}"
        if self._processing_handler == FAIL:
            log.error("%s", text, exc_info=error)
            raise RecordFailed(f"{text} (processing_handler={SKIP} skips it)") from error
        self.dropped += 1
        log.warning("%s; it is skipped", text)


def place_of(record: ConsumerRecord) -> str:
    """Describe a record's place and key."""
    return f"{record.topic}-{record.partition} at offset {record.offset}, key {key_text(record.key)},"


def key_text(key: bytes | None) -> str:
    """Return a key as it is displayed: long ones are cut."""
    text = repr(key)
    return text if len(text) <= KEY_LENGTH_MAX else f"{text[:KEY_LENGTH_MAX]}..."


def error_text(error: BaseException) -> str:
    """Describe an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def headers_of(record: ConsumerRecord, error: Exception) -> Headers:
    """Return the headers of a dead-lettered record, all text (KIP-1034)."""
    facts = {
        "exception": error_text(error),
        "message": str(error),
        "stacktrace": "".join(traceback.format_exception(error)),
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
    }
    return tuple((f"__streams.errors.{name}", text.encode()) for name, text in facts.items())
