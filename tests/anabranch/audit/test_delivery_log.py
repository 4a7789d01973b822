"""Delivery logs of other clients: valid fields, order of lines, and the audit of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from anabranch.audit.delivery_log import InvalidLine, Lines, deliveries, runs, stored_records
from anabranch.protocol import audit as wire
from anabranch.protocol import audit_mark
from anabranch.protocol.audit import Delivery


def lines(*rows: dict[str, Any], name: str = "handed.jsonl") -> Lines:
    return Lines(name, [json.dumps({"partition": 0, "offset": 0, **row}) + "\n" for row in rows])


def of_runs(found: Iterable[Delivery]) -> list[Delivery]:
    return [one for row in runs(found, "audit") for one in wire.decode_events(row.value, row.key)]


def test_delivery_line_is_decoded() -> None:
    (one,) = deliveries(
        [lines({"key": "é", "sequence": 7, "partition": 3, "offset": 91, "generation": 2, "time_ms": 5})]
    )
    assert (one.key, one.sequence, one.partition, one.offset, one.generation, one.time_ms) == (
        "é".encode(),
        7,
        3,
        91,
        2,
        5,
    )
    assert (one.topic, one.group, one.member, one.number) == ("records", "readers", "handed.jsonl", 0)
    assert one.key_hash == wire.key_hash(one.key, 3)
    (bare,) = deliveries([lines({"key": None, "partition": 3})])
    assert (bare.key, bare.sequence, bare.producer, bare.generation) == (
        None,
        audit_mark.NO_SEQUENCE,
        audit_mark.NO_PRODUCER,
        -1,
    )
    assert of_runs([one]) == [one]


def test_producers_and_members_have_separate_identities() -> None:
    rows = [{"key": "k", "sequence": 0, "producer": one, "member": one} for one in ("a", "b", "a")]
    found = list(deliveries([lines(*rows)]))
    assert found[0].producer == found[2].producer != found[1].producer
    assert found[0].incarnation == found[2].incarnation != found[1].incarnation
    assert [one.number for one in found] == [0, 0, 1], "each member's events without a hole"


def test_events_of_a_key_keep_order_of_their_lines() -> None:
    rows = [
        {"key": f"k{number % 7}", "sequence": number // 7, "offset": number, "member": "ab"[number // 3 % 2]}
        for number in range(5000)
    ]
    found = of_runs(deliveries([lines(*rows)]))
    assert len(found) == 5000
    for key in {one.key for one in found}:
        offsets = [one.offset for one in found if one.key == key]
        assert offsets == sorted(offsets)
    assert [row.offset for row in runs(deliveries([lines(*rows)]), "audit")] == list(
        range(len(list(runs(deliveries([lines(*rows)]), "audit"))))
    )


def test_files_are_merged_by_time() -> None:
    first = lines({"offset": 1, "time_ms": 10}, {"offset": 3, "time_ms": 30}, name="a")
    second = lines({"offset": 2, "time_ms": 20}, {"offset": 4, "time_ms": 40}, name="b")
    assert [one.offset for one in deliveries([first, second])] == [1, 2, 3, 4]
    assert [one.member for one in deliveries([first, second])] == ["a", "b", "a", "b"]


def test_stored_record_matches_its_delivery() -> None:
    row = {"key": "k", "sequence": 3, "partition": 1, "offset": 9}
    (sent,), (one,) = stored_records([lines(row)]), deliveries([lines(row)])
    assert (sent.key, sent.partition, sent.offset, sent.topic) == (one.key, one.partition, one.offset, one.topic)
    assert audit_mark.decode(sent.mark) == (one.producer, one.sequence)
    assert wire.fingerprint(sent.value) == one.fingerprint
    (unnumbered,) = stored_records([lines({"key": "k"})])
    assert unnumbered.mark == audit_mark.NO_MARK


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[1]", "not a JSON object"),
        ('{"offset": 1}', "partition is missing"),
        ('{"partition": 1}', "offset is missing"),
        ('{"partition": -1, "offset": 1}', "partition is a whole number from 0"),
        ('{"partition": 1, "offset": 1099511627776}', "offset is a whole number from 0 to 1099511627775"),
        ('{"partition": 1, "offset": 1.5}', "offset is a whole number"),
        ('{"partition": true, "offset": 1}', "partition is a whole number"),
        ('{"partition": 1, "offset": 1, "sequence": "7"}', "sequence is a whole number"),
        ('{"partition": 1, "offset": 1, "key": 42}', "key is a string or null"),
        ('{"partition": 1, "offset": 1, "group": null}', "group is a string"),
        ('{"partition": 1, "offset": 1, "group": "\\ud800"}', "group is a string"),
        ('{"partition": 1, "offset": 1, "seq": 7}', "seq is unknown; the fields are key, sequence"),
        ('{"partition": 1, "offset": 1, "time_ms": 7}', "time_ms must be in all lines of all files, or in none"),
    ],
)
def test_malformed_line_is_shown_with_its_number(text: str, why: str) -> None:
    given = ["\n", '{"partition": 0, "offset": 0}\n', f"{text}\n"]
    with pytest.raises(InvalidLine, match=why) as refusal:
        list(deliveries([Lines("handed.jsonl", given)]))
    assert str(refusal.value).startswith("handed.jsonl:3: ")
    assert str(refusal.value).endswith(text)


def test_files_without_times_are_not_merged() -> None:
    with pytest.raises(InvalidLine, match="time_ms must be in all lines of all files, or in none"):
        list(deliveries([lines({}), lines({}, name="b")]))


def test_line_that_is_not_utf_8_is_invalid() -> None:
    """If such bytes were replaced, two keys would be one."""
    line = b'{"partition": 0, "offset": 0, "key": "\xff"}\n'.decode(errors="surrogateescape")
    with pytest.raises(InvalidLine, match=r"^handed\.jsonl:1: not UTF-8: .*udcff"):
        list(deliveries([Lines("handed.jsonl", [line])]))
