"""The fields of a rule as keyword arguments, for type checkers: `faults.add(api="Produce", delay_ms=500)`.

`Rule` documents the fields. A list of one element may be written without the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class RequestFilter(TypedDict, total=False):
    """The conditions on requests."""

    api: str | Sequence[str]
    versions: str
    brokers: int | Sequence[int]
    listener: str
    address: str
    principal: str
    client_id: str
    topic: str | Sequence[str]
    partition: int | Sequence[int]
    group: str | Sequence[str]
    transactional_id: str | Sequence[str]
    producer_id: int | Sequence[int]
    between_brokers: bool
    link: str | Sequence[str]


class RuleFields(RequestFilter, total=False):
    """All fields of a rule: conditions, counts and effects."""

    name: str
    first: int
    step: str | Sequence[str]
    times: int
    after: int
    every: int
    probability: float
    until: str
    while_rule: str
    seed: int
    error: str
    level: Literal["top", "topic", "partition", "row"]
    after_work: bool
    throttle_ms: int
    edit: Mapping[str, Any]
    delay_ms: float | Sequence[float]
    hold: bool
    node: Literal["kill", "stop", "start", "freeze", "expire", "suspend"]
    on: int | Sequence[int]
    elect: Literal["preferred", "unclean"]
    stale_metadata: bool
    disk: Literal["full", "flush"]
    silence: bool
    half_open: bool
    disconnect: Literal["before", "after", "middle"]
    truncate: int
    corrupt: Literal["records", "frame"]
    wrong_correlation_id: bool
    drip: int
