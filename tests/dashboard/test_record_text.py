"""Goal: records are shown as they are, JSON on lines; totals count what is there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.chromium import Page

pytestmark = pytest.mark.browser


def test_json_is_indented_unless_a_number_would_change(modules: Page) -> None:
    for value, expected in [
        ('{"a": 1, "b": ["x y", 2]}', '{\n  "a": 1,\n  "b": [\n    "x y",\n    2\n  ]\n}'),
        ('{"id": 9007199254740993}', '{"id": 9007199254740993}'),
        ('{"price": 1.0}', '{"price": 1.0}'),
        ("plain text", "plain text"),
        ("17", "17"),
        (None, "null"),
        ({"base64": "/w=="}, '{"base64":"/w=="}'),
    ]:
        assert modules.run("record_text.js", "it.pretty(given[0])", value) == expected, value


def test_headers_are_read_from_lines(modules: Page) -> None:
    read = "it.readHeaders(given[0])"
    assert modules.run("record_text.js", read, "trace: a:b\n\n empty:\n") == [["trace", "a:b"], ["empty", ""]]
    refused = modules.run("record_text.js", "(() => { try { it.readHeaders('x') } catch (e) { return e.message } })()")
    assert refused == "a header is written as name: value, not x"


def test_time_without_zone_is_in_zone_of_browser(modules: Page) -> None:
    modules.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        for text, expected in [
            ("2026-11-23T10:00", "2026-11-23T01:00:00.000Z"),
            ("2026-11-23", "2026-11-22T15:00:00.000Z"),
            ("2026-11-23T10:00+02:00", "2026-11-23T10:00+02:00"),
            ("2026-13-99", "2026-13-99"),
            ("15m", "15m"),
            ("latest", "latest"),
        ]:
            assert modules.run("record_text.js", "it.withZone(given[0])", text) == expected
    finally:
        modules.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_totals_count_offsets_and_problems(modules: Page) -> None:
    rows = [
        {"leader": 1, "hw": 10, "isr": [1, 2], "replicas": [[1, 4, 12], [2, 0, 10]]},
        {"leader": -1, "hw": -1, "isr": [2], "replicas": [[1, -1, -1], [2, 0, 3]]},
    ]
    expected = {"partitions": 2, "records": 6, "offline": 1, "under": 1, "troubled": True}
    assert modules.run("totals.js", "it.totalsOf(given[0])", rows) == expected
    assert not modules.run("totals.js", "it.totalsOf(given[0])", rows[:1])["troubled"]


def test_topics_of_a_group_are_those_that_it_reads_or_has_read(modules: Page) -> None:
    def topics(protocol: str, commits: list[str], *owned: list[str]) -> Any:
        group = {"protocol": protocol, "members": [{"owns": {name: [0] for name in names}} for names in owned]}
        return modules.run("totals.js", "it.topicsOf(given[0], given[1])", group, {name: {"0": 1} for name in commits})

    assert topics("range", ["old", "t"], ["t", "u"], ["u"]) == ["old", "t", "u"]
    assert topics("range", []) == []
    assert topics("share", ["t"], ["t", "u"]) == ["t"], "it has no position before it begins to read"
