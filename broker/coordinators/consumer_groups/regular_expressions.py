"""Subscriptions by regular expression: which topics one matches, and when it has to be looked at again.

Kafka's brokers use RE2/J; here it is RE2 itself. Both take time that grows with the length of the name alone, so no
expression, however made, holds up a broker. An expression has to match a topic's whole name. It is resolved outside of
the heartbeat that brings it, against all topics that its member may describe, and matches nothing until then.

Source: KIP-848; Kafka's GroupMetadataManager (maybeUpdateRegularExpressions, refreshRegularExpressions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import re2

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

REFRESH_MIN_MS: Final = 10_000
"""How long a resolution stands at least, so that a cluster where many topics are made is not searched each time."""
MEMORY_MAX_BYTES: Final = 8 << 20
"""What one expression may take once it is compiled; RE2's own default."""


@value
class ResolvedRegularExpression:
    """What an expression matched, when, and as of which image of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def check(expression: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION for what is none."""
    _compiled(expression)


def matcher(expression: str) -> Callable[[str], bool]:
    """Whether a whole name matches. Raises INVALID_REGULAR_EXPRESSION."""
    matches = _compiled(expression).fullmatch
    return lambda name: matches(name) is not None


def resolve(
    expressions: Iterable[str],
    names: Iterable[str],
    may_describe: Callable[[str], bool],
    *,
    version: int,
    now_ms: int,
) -> Mapping[str, ResolvedRegularExpression]:
    """What each of these matches; one that cannot be compiled any more matches nothing."""
    matched: dict[str, set[str]] = {}
    for expression in expressions:
        try:
            matches = _compiled(expression).fullmatch
        except KafkaError:
            matched[expression] = set()
            continue
        matched[expression] = {name for name in names if matches(name)}
    visible = {name for name in set().union(*matched.values()) if may_describe(name)}
    return {
        expression: ResolvedRegularExpression(frozenset(found & visible), version, now_ms)
        for expression, found in matched.items()
    }


def _compiled(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX_BYTES
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{expression!r} is no expression: {text}") from None
