"""A report fits on a screen, shows the test's own clients, and loses nothing."""

from __future__ import annotations

import json
from typing import Any

from anabranch.testing.failure_report import FailureReport, events_of_test


def exchange(number: int, api: str = "Produce", client_id: str | None = "app") -> dict[str, Any]:
    return {
        "number": number,
        "at": 1.5,
        "node": 1,
        "client_id": client_id,
        "api": api,
        "version": 9,
        "ms": 2.0,
        "errors": [],
        "outcome": "answered",
        "rules": [],
        "overruled": [],
        "request": {"large": "x" * 1000},
    }


def test_report_has_less_than_forty_lines_and_newest_entries() -> None:
    rules = [{"name": f"r{one}", "hits": one, "met": 9, "rule": {"name": f"r{one}", "hold": True}} for one in range(50)]
    events = [{"number": one, "at": 2.0, "kind": "leader", "topic": "t", "leader": one} for one in range(100)]
    found = FailureReport(rules, [exchange(one, ("Fetch", "Produce")[one % 2]) for one in range(100)], events)
    told = dict(found.sections())
    assert list(told) == ["rules", "exchanges", "events"]
    assert sum(len(text.splitlines()) + 1 for text in told.values()) < 40
    assert told["rules"].splitlines()[-1] == 'r49: 49 hits in 9 requests  {"hold": true}'
    assert told["exchanges"].splitlines()[-1].split()[:5] == ["99", "1.500", "node", "1", "app"]
    assert told["events"].splitlines()[-1].split() == ["2.000", "leader", "topic=t", "leader=99"]
    assert "large" not in told["exchanges"]
    rows = [json.loads(line) for line in found.json_lines()]
    assert [sum(row["row"] == kind for row in rows) for kind in ("rule", "exchange", "event")] == [50, 100, 100]


def test_equal_exchanges_in_a_row_are_one_line_with_their_number() -> None:
    retries = [exchange(one, "Metadata") for one in range(1, 4)]
    told = dict(FailureReport((), [exchange(0), *retries, exchange(4) | {"node": 2}], ()).sections())
    assert [(line.split()[0], line.endswith("3 times")) for line in told["exchanges"].splitlines()] == [
        ("0", False),
        ("3", True),
        ("4", False),
    ]


def test_connection_and_admin_requests_and_empty_sections_are_omitted() -> None:
    hidden = [exchange(1, "ApiVersions"), exchange(2, "CreateTopics", "anabranch-admin"), exchange(3, "SaslHandshake")]
    assert dict(FailureReport((), hidden, ()).sections()) == {}
    shown = dict(FailureReport((), [*hidden, exchange(4, "CreateTopics", None)], ()).sections())
    assert shown["exchanges"].split()[0] == "4"


def test_unreachable_cluster_is_named() -> None:
    assert list(FailureReport(unreachable="cannot connect to").sections()) == [("cluster", "cannot connect to")]


def test_events_of_internal_topics_and_first_leaders_are_left_out_and_later_ones_shown() -> None:
    def event(number: int, kind: str, **more: Any) -> dict[str, Any]:
        return {"number": number, "at": 1.0, "kind": kind, **more}

    events = [
        event(1, "topic created", topic="orders"),
        event(2, "leader", topic="orders", partition=0, leader=1, leader_epoch=0),
        event(3, "isr", topic="orders", partition=0, isr=[1, 2]),
        event(4, "topic created", topic="__consumer_offsets"),
        event(5, "leader", topic="__consumer_offsets", partition=0, leader=1, leader_epoch=1),
        event(6, "isr", topic="orders", partition=0, isr=[2]),
        event(7, "isr", topic="older", partition=0, isr=[2]),
        event(8, "node killed", node=1),
    ]
    assert [row["number"] for row in events_of_test(events)] == [1, 6, 7, 8]
    assert len(list(FailureReport((), (), events).json_lines())) == len(events)
