"""A rule that could never hit is refused with a suggestion; others are accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.faults.matching import BROKERS_ONLY
from anabranch.faults.rule_json import InvalidRule, from_json
from anabranch.faults.validation import check
from anabranch.protocol.answerable import answerable

FAIL = {"error": "REQUEST_TIMED_OUT"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"api": "Produced", **FAIL}, "unknown API 'Produced'; did you mean Produce"),
        ({"api": "xyz", **FAIL}, "unknown API 'xyz'; there are Produce, Fetch"),
        ({"api": "Produce", "versions": "14-", **FAIL}, "Produce has no version 14-; served are 0-13"),
        ({"api": "Produce", "versions": "14-15", **FAIL}, "Produce has no version 14-15; served are 0-13"),
        ({"versions": "a-b", **FAIL}, "versions are written as 7, 3-9 or 12-, not 'a-b'"),
        ({"brokers": [1, 9], **FAIL}, "there is no broker 9; there are 1, 2, 3"),
        ({"api": "Produce", "error": "NOT_LEADER"}, "unknown error 'NOT_LEADER'; did you mean NOT_LEADER_OR"),
        ({"api": "Produce", "error": "NONE"}, "unknown error 'NONE'"),
        ({"api": "Produce", "error": "NOT_CONTROLLER"}, "Produce never returns NOT_CONTROLLER; .*NOT_ENOUGH"),
        (
            {"api": "Produce", "versions": "0-10", "error": "TRANSACTION_ABORTABLE"},
            "Produce returns .* from version 11 on",
        ),
        ({"api": "UpdateMetadata", **FAIL}, "only brokers and controllers send UpdateMetadata; add between_brokers"),
        ({"api": "Heartbeat", "topic": "a", "hold": True}, "Heartbeat has no topic; APIs that have one are .*Produce"),
        ({"api": "Heartbeat", "level": "partition", **FAIL}, "no error of level partition; its levels are top"),
        ({"api": "PartitionLeaderEpochsForPartitions", "versions": "0", **FAIL}, "has no error code"),
        (
            {"api": "UpdateMetadata", "between_brokers": True, "partition": 1, **FAIL},
            "applies to the whole request; leave out partition, or set level=top",
        ),
        ({"api": "Produce"}, "the rule has no action; the actions are"),
        ({"api": "Produce", "level": "top"}, "the rule has no action; the actions are"),
        ({"api": "Produce", "hold": True, "level": "top"}, "level needs error"),
        ({"api": "Produce", "silence": True, **FAIL}, "silence sends no response: leave out error"),
        ({"silence": True, "disconnect": "before"}, "silence, disconnect are mutually exclusive"),
        ({"disconnect": "later"}, "disconnect is before, after, middle, not 'later'"),
        ({"delay_ms": [5, 1]}, "delay_ms must be one number, or several in increasing order, not"),
        ({"delay_ms": [1, 9, 5]}, "delay_ms must be one number, or several in increasing order, not"),
        ({"delay_ms": [-1]}, "delay_ms must be one number, or several in increasing order, not"),
        ({"hold": True, "until": "soon"}, "until: a span of time is a number and one of"),
        ({"hold": True, "until": "0s"}, "until 0s has no duration"),
        ({"hold": True, "name": "a", "while_rule": "a"}, "rule a waits for itself"),
        ({"node": "melt"}, "node is kill, stop, start, freeze, expire, suspend, not 'melt'"),
        ({"node": "start"}, "start needs `on`: the broker that gets the request is running"),
        ({"node": "kill", "on": [7]}, "there is no broker 7; there are 1, 2, 3"),
        ({"hold": True, "on": [1]}, "on needs node"),
        ({"hold": True, "link": "1-2"}, "a link is written as 1:2, from broker 1 to broker 2, or .*, not '1-2'"),
        ({"hold": True, "link": "2:2"}, "requests of broker 2 to itself use no link; name another broker, or \\*"),
        ({"hold": True, "versions": "99"}, "no API has version 99"),
        ({"hold": True, "versions": "9-3"}, "no API has version 9-3"),
        (
            {"api": ["Fetch", "SaslHandshake"], "throttle_ms": 5},
            "responses of SaslHandshake have no throttle time; .* Produce, Fetch",
        ),
        ({"api": "Produce", "versions": "0", "throttle_ms": 5}, "responses of Produce have no throttle time"),
        (
            {"api": ["Fetch", "Metadata"], "corrupt": "records"},
            "responses of Metadata have no records; those that have are of Fetch, ShareFetch$",
        ),
        ({"step": "elect", "node": "kill", "topic": "a"}, "no conditions on requests: leave out topic"),
        ({"hold": True, "link": "1:9"}, "there is no broker 9; there are 1, 2, 3"),
        ({"hold": True, "link": "1:2", "api": "Produce"}, "brokers never send Produce to each other"),
        (
            {"hold": True, "between_brokers": True, "client_id": "shop*"},
            "no broker has the client id 'shop.*'; their client ids are broker-1",
        ),
        ({"hold": True, "client_id": "broker-1"}, "'broker-1' is the client id of a broker; add between_brokers"),
        ({"hold": True, "principal": "alice"}, "a principal is written as User:alice"),
        ({"stale_metadata": True, "api": "Metadata"}, "brokers get metadata by UpdateMetadata; leave out api"),
        ({"stale_metadata": True, **FAIL}, "stale_metadata sends no response: leave out error"),
        ({"elect": "unclean"}, "elect needs topic and partition"),
        ({"disk": "full", "api": "Produce"}, "a rule about disk has no conditions on requests: leave out api"),
        ({"disk": "full", "hold": True}, "a rule about disk has no conditions on requests: leave out hold"),
        ({"step": "resize:after-paln", "node": "kill"}, "unknown step .*; did you mean resize:after-plan"),
        (
            {"step": "elect", "node": "kill", "group": "g"},
            "a rule about step has no conditions on requests: leave out group",
        ),
        ({"step": "elect"}, "the rule has no action; the actions are"),
        ({"node": "kill", **FAIL}, "a killed broker sends no responses: leave out error"),
        ({"hold": True, "every": 0}, "every is at least 1, not 0"),
        ({"hold": True, "times": -1}, "times is at least 0, not -1"),
        ({"hold": True, "probability": 0}, "probability must be above 0 and at most 1, not"),
        ({"edit": {"a": 1}}, "edit needs one api"),
        (
            {"api": "FindCoordinator", "edit": {"node_id": 1, "coordinators[*].node_id": 1}},
            r"no version of FindCoordinator has all of node_id, coordinators\[\*\]\.node_id: write a rule for each",
        ),
        ({"api": "Metadata", "edit": {"topics[*].leader": 1}}, "edit topics.*has no leader; there are"),
    ],
)
def test_impossible_rule_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRule, match=re.compile(reason)):
        check(from_json(said), (1, 2, 3))


@pytest.mark.parametrize(
    "said",
    [
        {"api": "Produce", "topic": "a", "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER"},
        {"api": "Metadata", "topic": "a", "partition": 1, "error": "LEADER_NOT_AVAILABLE"},
        {"api": "UpdateMetadata", "between_brokers": True, "brokers": 2, "delay_ms": [0, 5]},
        {"delay_ms": 5},
        {"api": "Produce", "disconnect": "middle", "error": "REQUEST_TIMED_OUT"},
        {"api": "Metadata", "versions": "9-", "edit": {"topics[*].partitions[*].leader_id": 7}},
        {"api": ["InitProducerId", "EndTxn"], "transactional_id": "t", "error": "CONCURRENT_TRANSACTIONS"},
    ],
)
def test_possible_rule_is_accepted(said: dict[str, Any]) -> None:
    check(from_json(said), (1, 2, 3))


def test_every_error_code_of_an_api_is_accepted() -> None:
    for api in (row.api for row in HANDLERS):
        for code in answerable(api.name, frozenset()):
            said = {"api": api.name, "error": code.name, "between_brokers": api.key in BROKERS_ONLY}
            check(from_json(said), ())
