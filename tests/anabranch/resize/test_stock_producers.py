"""The lines of `topics alter` about producers without generations, by policy and previous writers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.clients.config_admin import ConfigEntry
from anabranch.clients.metadata import Topic
from anabranch.protocol.lineage import Lineage
from anabranch.resize.stock_producers import ORDERED, POLICY, stock_lines

TOPIC = Topic("t", b"", {}, lineage=Lineage(1, [(0, 4)]))
DEFAULT, TOPIC_SOURCE = 5, 1


def lines(count: int, policy: str = "auto", ordered: str | None = None, *, has_generations: bool = False) -> str:
    configs = {
        POLICY: ConfigEntry(name=POLICY, value=policy, source=DEFAULT, read_only=False, sensitive=False),
        ORDERED: ConfigEntry(
            name=ORDERED,
            value=ordered or "true",
            source=TOPIC_SOURCE if ordered else DEFAULT,
            read_only=False,
            sensitive=False,
        ),
    }
    return "\n".join(stock_lines(replace(TOPIC, has_generations=has_generations), count, configs))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lines(5), "continue as in Kafka, without the order of keys (reshard.legacy.producers=auto)"),
        (lines(5), "enable.ordered.delivery=true before"),
        (
            lines(5, has_generations=True),
            "are refused after the resize (reshard.legacy.producers=auto, a producer with",
        ),
        (lines(5, ordered="true"), "are refused after the resize (reshard.legacy.producers=auto, enable.ordered.del"),
        (lines(5, ordered="false", has_generations=True), "continue as in Kafka"),
        (lines(5, "refuse"), "are refused after the resize (reshard.legacy.producers=refuse)"),
        (lines(5, "allow", has_generations=True), "continue as in Kafka"),
        (lines(5, "verify"), "are accepted if they place keys by linear hashing over 5"),
        (lines(2), "but are refused on 2, 3 until it is drained"),
        (lines(2, "allow"), "but are refused on 2, 3"),
    ],
)
def test_plan_shows_effect_on_stock_producers(told: str, says: str) -> None:
    assert says in told


def test_topic_without_generations_has_no_lines() -> None:
    assert stock_lines(replace(TOPIC, lineage=None), 5, {}) == []
    assert stock_lines(TOPIC, 5, {}) == [], "nor has one of a cluster that knows no such property"
