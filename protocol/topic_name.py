"""Validates topic names (`org.apache.kafka.common.internals.Topic`)."""

from __future__ import annotations

import re
from typing import Final

TOPIC_NAME_LENGTH_MAX: Final = 249
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal(name: str) -> bool:
    """Whether a topic may have this name."""
    return name not in ("", ".", "..") and len(name) <= TOPIC_NAME_LENGTH_MAX and bool(_LEGAL_NAME.fullmatch(name))
