"""Compatibility profiles: visible versions per Kafka version; the default is unchanged."""

from __future__ import annotations

import json

import pytest

from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.broker.profiles.profile import VERSIONS, change_table, profile_for, table
from anabranch.protocol.registry import BY_NAME
from tests.broker.profiles import golden


async def test_kafka_3_9_responses_equal_the_recorded_ones() -> None:
    responses = dict(await golden.answers())
    before = json.loads(golden.FILE.read_text())
    assert list(responses) == list(before)
    different = [name for name, answer in responses.items() if answer != before[name]]
    assert not different


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_range_is_within_the_protocol(version: str) -> None:
    for name, text in profile_for(version).ranges.items():
        first, _, last = text.partition("-")
        assert 0 <= int(first) <= int(last or first), name
        if name in BY_NAME:
            assert int(last or first) <= BY_NAME[name].last_version, name


def test_every_handler_serves_the_kafka_3_9_versions() -> None:
    ranges = profile_for("3.9").ranges
    served = {row.name: row.versions for row in HANDLERS}
    for name, text in ranges.items():
        assert int(served[name].partition("-")[2] or 0) >= int(text.partition("-")[2] or 0), name


def test_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'4\.9' is no version of Kafka.*4\.0, 4\.1, 4\.2"):
        profile_for("4.9")


def test_version_tables_apply_changes_to_their_base() -> None:
    before = table("\nA 0-1\nB 2\n")
    assert before == {"A": "0-1", "B": "2"}
    assert change_table(before, "A gone\nB 2-3\nC 0") == {"B": "2-3", "C": "0"}
