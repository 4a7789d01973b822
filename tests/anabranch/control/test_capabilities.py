"""Capabilities list requests and rules with the reasons of refusals."""

from __future__ import annotations

from anabranch.control.capabilities import KINDS_OF_RULES, capabilities_row
from anabranch.faults.rule import FIELDS


def test_reason_of_a_refusal_makes_a_request_or_rule_impossible() -> None:
    row = capabilities_row([("GET", "/v1/state", ""), ("POST", "/v1/clock", "no clock")], {"disk": "no disk"})
    assert [(one["name"], one["possible"]) for one in row["requests"]] == [
        ("GET /v1/state", True),
        ("POST /v1/clock", False),
    ]
    assert {one["name"]: one["reason"] for one in row["rules"] if not one["possible"]} == {"disk": "no disk"}


def test_kinds_of_rules_are_fields_of_rules() -> None:
    fields = {one.name: one.metadata["one_of"] for one in FIELDS}
    for kind in KINDS_OF_RULES:
        field, _, value = kind.partition("=")
        assert kind == "requests" or (field in fields and (not value or value in fields[field])), kind
