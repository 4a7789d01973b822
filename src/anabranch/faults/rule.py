"""What a rule can say: which requests it is about, which of these it hits, and what then happens to them.

A rule is a value. What it has hit is known to the `ActiveRule` that a cluster makes of it, and only there. The help of
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


def rule_field(part: str, help: str, absent: Any, one_of: tuple[str, ...] = ()) -> Any:
    """A field of a rule: the part it belongs to, what it means, and what its absence stands for."""
    metadata = {"part": part, "help": help, "one_of": one_of}
    if isinstance(absent, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=absent, metadata=metadata)


@value(kw_only=True)
class Rule:
    """One rule. What it does not say, it does not ask for: `Rule(api=("Produce",), error="NOT_LEADER_OR_FOLLOWER")`."""

    name: str = rule_field(WHERE, "what it is called; a new one if left out", "")
    api: tuple[str, ...] = rule_field(WHERE, "requests of these APIs, such as Produce", ())
    versions: str = rule_field(WHERE, "of these versions: 7, 3-9, 12-", "")
    brokers: tuple[int, ...] = rule_field(WHERE, "to these brokers", ())
    listener: str = rule_field(WHERE, "by this listener", "")
    address: str = rule_field(WHERE, "from this host", "")
    principal: str = rule_field(WHERE, "as this principal, such as User:alice", "")
    client_id: str = rule_field(WHERE, "with a client id like this; * and ? stand for anything", "")
    topic: tuple[str, ...] = rule_field(WHERE, "about these topics", ())
    partition: tuple[int, ...] = rule_field(WHERE, "about these partitions", ())
    group: tuple[str, ...] = rule_field(WHERE, "about these consumer groups", ())
    transactional_id: tuple[str, ...] = rule_field(WHERE, "about these transactional ids", ())
    producer_id: tuple[int, ...] = rule_field(WHERE, "of these producer ids", ())
    first: int = rule_field(WHERE, "only among the first so many requests of a connection", 0)
    between_brokers: bool = rule_field(
        WHERE, "what brokers and controllers ask each other, instead of what clients ask", False
    )
    link: tuple[str, ...] = rule_field(
        WHERE,
        "what goes from one broker to another, as 1:2 or *:2: requests of the one, answers to those of the other",
        (),
    )
    step: tuple[str, ...] = rule_field(
        WHERE, "instead of requests, these steps of controllers: resize:after-plan, elect, ...", ()
    )
    times: int = rule_field(WHEN, "so many times; 0: always", 0)
    after: int = rule_field(WHEN, "not before so many have passed", 0)
    every: int = rule_field(WHEN, "every so many-th", 1)
    probability: float = rule_field(WHEN, "with this probability", 1.0)
    until: str = rule_field(WHEN, "only for so long after it was made, by the cluster's clock: 500ms, 45s, 2h", "")
    while_rule: str = rule_field(WHEN, "only while the rule of this name is there, and not spent", "")
    seed: int = rule_field(WHEN, "what the probability and delays are drawn from", 0)
    error: str = rule_field(WHAT, "answer this error code, in the rows that are meant; the others are served", "")
    level: str = rule_field(
        WHAT, "where the error stands, if the API has it in several places", "", ("top", "topic", "partition", "row")
    )
    after_work: bool = rule_field(WHAT, "do what is asked first, and then answer otherwise, late, or not at all", False)
    throttle_ms: int = rule_field(WHAT, "tell the client to wait so long", 0)
    edit: Mapping[str, Any] = rule_field(WHAT, "set fields of the answer: topics[*].partitions[*].leader_id = 7", {})
    delay_ms: tuple[float, ...] = rule_field(
        WHAT, "wait so long; two numbers: anything between them; more: quantiles, evenly spaced", ()
    )
    hold: bool = rule_field(WHAT, "wait until it is released", False)
    node: str = rule_field(
        WHAT,
        "do this to the broker that was asked: end it without a word, stop it in order, start it, freeze it amid "
        "what it does, end its ZooKeeper session, cut it off from ZooKeeper",
        "",
        ("kill", "stop", "start", "freeze", "expire", "suspend"),
    )
    on: tuple[int, ...] = rule_field(WHAT, "do it to these brokers instead", ())
    elect: str = rule_field(
        WHAT,
        "have leaders elected for the partitions that the rule names, as an administrator would",
        "",
        ("preferred", "unclean"),
    )
    stale_metadata: bool = rule_field(
        WHAT, "the broker tells clients of the cluster what it knows now; it hears of the rest afterwards", False
    )
    disk: str = rule_field(
        WHAT,
        "instead of requests, fail writes to the brokers' disks: there is no room, or flushes fail",
        "",
        ("full", "flush"),
    )
    silence: bool = rule_field(WHAT, "answer nothing on this connection any more, and leave it open", False)
    half_open: bool = rule_field(WHAT, "the same, and read nothing either: as if the broker's machine were gone", False)
    disconnect: str = rule_field(
        WHAT,
        "close the connection: before anything is done, after it is done, in the middle of the answer",
        "",
        ("before", "after", "middle"),
    )
    truncate: int = rule_field(WHAT, "cut so many bytes off the answer's end, and say that it is as short as that", 0)
    corrupt: str = rule_field(
        WHAT,
        "flip a byte of the answer: of its records, so that their checksum is wrong, or in the middle of the frame",
        "",
        ("records", "frame"),
    )
    wrong_correlation_id: bool = rule_field(WHAT, "answer as if another request were meant", False)
    drip: int = rule_field(WHAT, "send the answer at so many bytes a second", 0)


HINTS: Final[Mapping[str, Any]] = typing.get_type_hints(Rule)
"""Field -> its type."""
FIELDS: Final[tuple[dataclasses.Field[Any], ...]] = dataclasses.fields(Rule)
KILL: Final = "kill"
FREEZE: Final = "freeze"
CONTINUOUS: Final = (FREEZE, "suspend")
"""What is done to a broker until the rule is released or removed."""
SILENT: Final = ("silence", "half_open", "disconnect")
"""What leaves nothing to be answered, unless it is in the middle of it."""


def about_requests(rule: Rule) -> bool:
    """Whether it is about requests, and not about disks or steps."""
    return not (rule.disk or rule.step)


def is_about_links(rule: Rule) -> bool:
    """Whether it is about what brokers ask each other."""
    return rule.between_brokers or bool(rule.link) or rule.stale_metadata


def is_set(rule: Rule, field: str) -> bool:
    """Whether the rule says anything about a field."""
    declared = next(one for one in FIELDS if one.name == field)
    absent = {} if declared.default is dataclasses.MISSING else declared.default
    return bool(getattr(rule, field) != absent)


def rule_text(rule: Rule) -> str:
    """A rule in one line, for people."""
    shown = []
    for field in FIELDS:
        if field.name != "name" and is_set(rule, field.name):
            content = getattr(rule, field.name)
            if isinstance(content, tuple):
                content = ",".join(map(str, content))
            elif isinstance(content, Mapping):
                content = ",".join(f"{path}={one}" for path, one in content.items())
            shown.append(field.name if content is True else f"{field.name}={content}")
    return " ".join(shown)
