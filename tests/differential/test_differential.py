"""Responses equal those of Apache Kafka 3.9, and of a Kafka 4 with the profile of its version, field by field.

Needs Kafka's jars (see `kafka_server`, `kraft_server`). `python -m tests.differential` prints the comparison.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch.journal.comparison import unequal
from tests.differential.case import CASES
from tests.differential.compare import Comparison
from tests.differential.kafka_server import why_absent
from tests.differential.known import KNOWN_DIFFERENCES, known_differences
from tests.differential.kraft_server import version_of_jars
from tests.differential.kraft_server import why_absent as why_4_absent
from tests.differential.run import compared
from tests.differential.shares import table

SHARE_LEAST = 0.95
marked = [pytest.mark.kafka_jars, pytest.mark.zookeeper, pytest.mark.processes]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """The whole corpus; without Kafka the test is skipped loudly."""
    if reason := why_absent():
        pytest.skip(f"NOT COMPARED WITH KAFKA: {reason}")
    return asyncio.run(compared(CASES))


class TestAgainstKafka:
    pytestmark = marked

    def test_every_difference_is_known(self, comparison: Comparison) -> None:
        found = [one for one in comparison.differences if not any(row.explains(one) for row in KNOWN_DIFFERENCES)]
        assert not found, "\n".join(map(str, found[:50]))

    def test_no_known_difference_has_gone(self, comparison: Comparison) -> None:
        gone = [row for row in KNOWN_DIFFERENCES if not any(row.explains(one) for one in comparison.differences)]
        assert not gone

    def test_most_answers_are_equal(self, comparison: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
        with capsys.disabled():
            print("\n" + table(comparison))
        assert comparison.share >= SHARE_LEAST


@pytest.mark.kafka_jars
@pytest.mark.zookeeper
@pytest.mark.processes
def test_every_difference_from_kafka_4_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    if reason := why_4_absent():
        pytest.skip(f"NOT COMPARED WITH KAFKA 4: {reason}")
    kafka = version_of_jars()
    found = asyncio.run(compared(CASES, kafka))
    with capsys.disabled():
        print("\n" + table(found))
    known = known_differences(kafka)
    strange = [one for one in found.differences if not any(row.explains(one) for row in known)]
    assert not strange, "\n".join(map(str, strange[:50]))
    assert not [row for row in known if not any(row.explains(one) for one in found.differences)]
    assert found.share >= SHARE_LEAST


def test_a_difference_is_found_at_its_place() -> None:
    kafka = {"topics": [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 3}], "left": None}
    ours = {"topics": [{"name": "a", "error_code": 7}], "left": 0}
    assert list(unequal(kafka, ours)) == [
        ("topics[a].error_code", 0, 7),
        ("topics[b]", {"name": "b", "error_code": 3}, "not there"),
        ("left", None, 0),
    ]


def test_a_number_is_not_a_truth_value_and_silence_where_kafka_speaks_is_a_difference() -> None:
    assert list(unequal({"x": True}, {"x": 1})) == [("x", True, 1)]
    assert list(unequal({"x": "(said)"}, {"x": "(nothing)"})) == [("x", "(said)", "(nothing)")]
    assert not list(unequal({"x": "(nothing)"}, {"x": "(said)"}))


def test_every_api_of_kafka_is_in_the_corpus() -> None:
    import tests.differential.corpus  # noqa: F401  # fills CASES
    from anabranch.protocol.registry import APIS

    kafkas = {api.name for api in APIS if api.key < 2530}
    missing = {name for name in kafkas - {case.api for case in CASES} if "Share" not in name}
    assert not missing  # but the APIs of share groups, which have no cases yet
