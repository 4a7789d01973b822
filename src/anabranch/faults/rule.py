"""What a rule can say: which requests it is about, which of these it hits, and what then happens to them.

A rule is a value. What it has hit is known to the `ArmedRule` that a cluster makes of it, and only there. The help of
each field is told by the JSON Schema and by the command line.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Final

from anabranch.protocol.values import value

WHERE: Final = "where"
WHEN: Final = "when"
WHAT: Final = "what"


def said(part: str, help: str, absent: Any, one_of: tuple[str, ...] = ()) -> Any:
    """A field of a rule: the part it belongs to, what it means, and what its absence stands for."""
    metadata = {"part": part, "help": help, "one_of": one_of}
    if isinstance(absent, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=absent, metadata=metadata)


@value(kw_only=True)
class Rule:
    """One rule. What it does not say, it does not ask for: `Rule(api=("Produce",), error="NOT_LEADER_OR_FOLLOWER")`."""

    name: str = said(WHERE, "what it is called; a new one if left out", "")
    api: tuple[str, ...] = said(WHERE, "requests of these APIs, such as Produce", ())
    versions: str = said(WHERE, "of these versions: 7, 3-9, 12-", "")
    brokers: tuple[int, ...] = said(WHERE, "to these brokers", ())
    listener: str = said(WHERE, "by this listener", "")
    address: str = said(WHERE, "from this host", "")
    principal: str = said(WHERE, "as this principal, such as User:alice", "")
    client_id: str = said(WHERE, "with a client id like this; * and ? stand for anything", "")
    topic: tuple[str, ...] = said(WHERE, "about these topics", ())
    partition: tuple[int, ...] = said(WHERE, "about these partitions", ())
    group: tuple[str, ...] = said(WHERE, "about these consumer groups", ())
    transactional_id: tuple[str, ...] = said(WHERE, "about these transactional ids", ())
    producer_id: tuple[int, ...] = said(WHERE, "of these producer ids", ())
    first: int = said(WHERE, "only among the first so many requests of a connection", 0)
    between_brokers: bool = said(
        WHERE, "what brokers and controllers ask each other, instead of what clients ask", False
    )
    link: tuple[str, ...] = said(
        WHERE,
        "what goes from one broker to another, as 1:2 or *:2: requests of the one, answers to those of the other",
        (),
    )
    step: tuple[str, ...] = said(
        WHERE, "instead of requests, these steps of controllers: resize:after-plan, elect, ...", ()
    )
    times: int = said(WHEN, "so many times; 0: always", 0)
    after: int = said(WHEN, "not before so many have passed", 0)
    every: int = said(WHEN, "every so many-th", 1)
    probability: float = said(WHEN, "with this probability", 1.0)
    until: str = said(WHEN, "only for so long after it was made, by the cluster's clock: 500ms, 45s, 2h", "")
    while_rule: str = said(WHEN, "only while the rule of this name is there, and not spent", "")
    seed: int = said(WHEN, "what the probability and delays are drawn from", 0)
    error: str = said(WHAT, "answer this error code, in the rows that are meant; the others are served", "")
    level: str = said(
        WHAT, "where the error stands, if the API has it in several places", "", ("top", "topic", "partition", "row")
    )
    after_work: bool = said(WHAT, "do what is asked first, and then answer otherwise, late, or not at all", False)
    throttle_ms: int = said(WHAT, "tell the client to wait so long", 0)
    edit: Mapping[str, Any] = said(WHAT, "set fields of the answer: topics[*].partitions[*].leader_id = 7", {})
    delay_ms: tuple[float, ...] = said(
        WHAT, "wait so long; two numbers: anything between them; more: quantiles, evenly spaced", ()
    )
    hold: bool = said(WHAT, "wait until it is released", False)
    node: str = said(
        WHAT,
        "do this to the broker that was asked: end it without a word, stop it in order, start it, freeze it amid "
        "what it does, end its ZooKeeper session, cut it off from ZooKeeper",
        "",
        ("kill", "stop", "start", "freeze", "expire", "suspend"),
    )
    on: tuple[int, ...] = said(WHAT, "do it to these brokers instead", ())
    elect: str = said(
        WHAT,
        "have leaders elected for the partitions that the rule names, as an administrator would",
        "",
        ("preferred", "unclean"),
    )
    stale_metadata: bool = said(
        WHAT, "the broker tells clients of the cluster what it knows now; it hears of the rest afterwards", False
    )
    disk: str = said(
        WHAT,
        "instead of requests, fail writes to the brokers' disks: there is no room, or flushes fail",
        "",
        ("full", "flush"),
    )
    silence: bool = said(WHAT, "answer nothing on this connection any more, and leave it open", False)
    half_open: bool = said(WHAT, "the same, and read nothing either: as if the broker's machine were gone", False)
    disconnect: str = said(
        WHAT,
        "close the connection: before anything is done, after it is done, in the middle of the answer",
        "",
        ("before", "after", "middle"),
    )
    truncate: int = said(WHAT, "cut so many bytes off the answer's end, and say that it is as short as that", 0)
    corrupt: str = said(
        WHAT,
        "flip a byte of the answer: of its records, so that their checksum is wrong, or in the middle of the frame",
        "",
        ("records", "frame"),
    )
    wrong_correlation_id: bool = said(WHAT, "answer as if another request were meant", False)
    drip: int = said(WHAT, "send the answer at so many bytes a second", 0)


HINTS: Final[Mapping[str, Any]] = typing.get_type_hints(Rule)
"""Field -> its type."""
FIELDS: Final[tuple[dataclasses.Field[Any], ...]] = dataclasses.fields(Rule)
KILL: Final = "kill"
FREEZE: Final = "freeze"
LASTING: Final = (FREEZE, "suspend")
"""What is done to a broker until the rule is released or removed."""
SILENT: Final = ("silence", "half_open", "disconnect")
"""What leaves nothing to be answered, unless it is in the middle of it."""


def about_requests(rule: Rule) -> bool:
    """Whether it is about requests, and not about disks or steps."""
    return not (rule.disk or rule.step)


def is_between(rule: Rule) -> bool:
    """Whether it is about what brokers ask each other."""
    return rule.between_brokers or bool(rule.link) or rule.stale_metadata


def is_said(rule: Rule, field: str) -> bool:
    """Whether the rule says anything about a field."""
    declared = next(one for one in FIELDS if one.name == field)
    absent = {} if declared.default is dataclasses.MISSING else declared.default
    return bool(getattr(rule, field) != absent)


def told(rule: Rule) -> str:
    """A rule in one line, for people."""
    shown = []
    for field in FIELDS:
        if field.name != "name" and is_said(rule, field.name):
            content = getattr(rule, field.name)
            if isinstance(content, tuple):
                content = ",".join(map(str, content))
            elif isinstance(content, Mapping):
                content = ",".join(f"{path}={one}" for path, one in content.items())
            shown.append(field.name if content is True else f"{field.name}={content}")
    return " ".join(shown)
