"""Formats records by a template with kcat's tokens: `%t-%p@%o %k %s\\n`.

A key or value that is null becomes empty text, and its length is -1. Nothing follows a record but what the template
says: most templates end with `\\n`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.clients.consumer.consumer_record import ConsumerRecord

Formatter = Callable[["ConsumerRecord"], bytes]

TOKENS: Final[dict[str, Formatter]] = {
    "%t": lambda record: record.topic.encode(),
    "%p": lambda record: b"%d" % record.partition,
    "%o": lambda record: b"%d" % record.offset,
    "%k": lambda record: record.key or b"",
    "%K": lambda record: b"%d" % _length(record.key),
    "%s": lambda record: record.value or b"",
    "%S": lambda record: b"%d" % _length(record.value),
    "%R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "%T": lambda record: b"%d" % record.timestamp,
    "%h": lambda record: b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers
    ),
}
LITERALS: Final = {"%%": b"%", r"\n": b"\n", r"\r": b"\r", r"\t": b"\t", r"\\": b"\\"}
PART: Final = re.compile(r"\\x[0-9a-fA-F]{2}|[%\\].?|[^%\\]+", re.DOTALL)


def compile_format(template: str) -> Formatter:
    """Compile a template. Raises ValueError for an unknown token or escape, with those that there are."""
    parts = [_part(one) for one in PART.findall(template)]

    def format_record(record: ConsumerRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return format_record


def _part(text: str) -> Formatter | bytes:
    if text in TOKENS:
        return TOKENS[text]
    if text in LITERALS:
        return LITERALS[text]
    if text[0] not in "%\\":
        return text.encode(errors="surrogateescape")
    if text.startswith("\\x") and len(text) == 4:
        return bytes.fromhex(text[2:])
    known = " ".join([*TOKENS, *LITERALS, r"\xHH"])
    raise ValueError(f"unknown token {text!s}; the tokens are {known}")


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)
