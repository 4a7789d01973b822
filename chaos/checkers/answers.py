"""Checks responses against the error codes that Kafka's clients expect: by API and version.

The lists are those of `protocol.answerable`. Every API may also refuse a client that has no right, in runs with an
authorizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.chaos.checkers.shared import Checker
from anabranch.chaos.history import History
from anabranch.protocol.answerable import ALLOWED
from anabranch.protocol.errors import ErrorCode

REFUSALS: Final = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


def a26_unexpected_error(history: History) -> Iterator[str]:
    """A response with an error code that its API does not have, or not in the version of the request."""
    for (api, version, code), count in sorted(history.answers.items()):
        if history.authorizes and code in REFUSALS:
            continue
        if code != ErrorCode.NONE and version < ALLOWED.get(api, {}).get(ErrorCode(code), version + 1):
            yield f"{api} v{version} returns {ErrorCode(code).name}, {count} times"


CHECKERS: Final[dict[str, Checker]] = {"A26 unexpected-error": a26_unexpected_error}
