"""Subscriptions by regular expression: validation, and resolution to topics.

Kafka's brokers use RE2/J; this module uses RE2. Both take time linear in the length of the name, so no expression can
block a broker. An expression has to match a topic's whole name. It is resolved outside of the heartbeat that brings it,
against all topics that its member may describe, and matches nothing until then.

Source: KIP-848; Kafka's GroupMetadataManager (maybeUpdateRegularExpressions, refreshRegularExpressions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import re2

from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

REFRESH_MIN_MS: Final = 10_000
"""The minimum time between resolutions, so that the creation of many topics does not trigger one each."""
MEMORY_MAX_BYTES: Final = 8 << 20
"""The memory limit of a compiled expression; RE2's default."""


@value
class ResolvedRegularExpression:
    """The topics that an expression matched, with the version of the topics and the time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def check(expression: str) -> None:
    """Validate an expression. Raises INVALID_REGULAR_EXPRESSION."""
    _compile(expression)


def matcher(expression: str) -> Callable[[str], bool]:
    """Return a predicate that matches whole names. Raises INVALID_REGULAR_EXPRESSION."""
    matches = _compile(expression).fullmatch
    return lambda name: matches(name) is not None


def resolve(
    expressions: Iterable[str],
    names: Iterable[str],
    may_describe: Callable[[str], bool],
    *,
    version: int,
    now_ms: int,
) -> Mapping[str, ResolvedRegularExpression]:
    """Resolve expressions to topics; one that no longer compiles matches nothing."""
    matched: dict[str, set[str]] = {}
    for expression in expressions:
        try:
            matches = _compile(expression).fullmatch
        except KafkaError:
            matched[expression] = set()
            continue
        matched[expression] = {name for name in names if matches(name)}
    visible = {name for name in set().union(*matched.values()) if may_describe(name)}
    return {
        expression: ResolvedRegularExpression(frozenset(found & visible), version, now_ms)
        for expression, found in matched.items()
    }


def _compile(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX_BYTES
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{expression!r} is not a regular expression: {text}"
        ) from None
