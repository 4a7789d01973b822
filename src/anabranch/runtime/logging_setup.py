"""The log of a long-running command on stderr: text lines or, with ANABRANCH_LOG_FORMAT=json, JSON lines.

It is an environment variable, not an option, so that every process of `up --processes` inherits it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Final

import click

VARIABLE: Final = "ANABRANCH_LOG_FORMAT"
TEXT: Final = "text"
JSON: Final = "json"
TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object: time (UTC), level, logger, message and the traceback, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record on one line, whatever its message contains."""
        row = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False, default=str)


def configure_logs(level: str) -> None:
    """Log to stderr from this level on. Raises UsageError for an unknown format."""
    log_format = os.environ.get(VARIABLE, TEXT)
    if log_format not in (TEXT, JSON):
        raise click.UsageError(f"{VARIABLE} is {TEXT} or {JSON}, not {log_format!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == JSON else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
