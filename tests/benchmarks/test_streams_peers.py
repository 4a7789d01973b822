"""Streams is measured beside its peers only if what comes out is right; short runs of this package's applications."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import streams_peers, streams_restore, streams_scaling
from benchmarks.peers import running
from benchmarks.report import console
from benchmarks.stream_applications.live_load import longest_gaps_ms
from benchmarks.stream_applications.peers import EXACTLY_ONCE, FAUST, GUARANTEES, JAVA, OWN, OWN_PEER
from benchmarks.stream_applications.truth import (
    COUNTS,
    JOIN,
    KINDS,
    MINUTE_MS,
    PROBE,
    WINDOWS,
    CountTruth,
    JoinTruth,
    Records,
    WrongOutput,
    truth_of,
)
from benchmarks.streams_peers import Case, Measured

RECORDS = Records(keys=10, total=100, first_ms=50 * MINUTE_MS)


def test_each_minute_of_a_key_is_counted_apart() -> None:
    truth = truth_of(WINDOWS, RECORDS)
    truth.expect(range(100))
    key = RECORDS.key(0)
    for minute in range(50, 60):
        truth.take(key, b"%d 1" % (minute * MINUTE_MS))
    assert truth.left == 90


@pytest.mark.parametrize("counts", [(1, 1), (1, 3, 2), (11,)], ids=["repeated", "lower", "too high"])
def test_count_that_the_input_does_not_imply_is_refused(counts: tuple[int, ...]) -> None:
    truth = CountTruth(RECORDS)
    truth.expect(range(100))
    *right, wrong = counts
    for count in right:
        truth.take(RECORDS.key(0), b"%d" % count)
    with pytest.raises(WrongOutput):
        truth.take(RECORDS.key(0), b"%d" % wrong)


def test_counts_are_complete_although_some_changes_are_left_out() -> None:
    truth = CountTruth(RECORDS)
    truth.expect(range(100))
    for key in {RECORDS.key(one) for one in range(100)}:
        truth.take(key, b"4")
        truth.take(key, b"10")
    assert truth.left == 0


def test_every_record_is_joined_once_with_the_row_of_its_key() -> None:
    truth = truth_of(JOIN, RECORDS)
    assert isinstance(truth, JoinTruth)
    truth.expect(range(2))
    key, row = RECORDS.key(0), RECORDS.row(RECORDS.key(0))
    truth.take(key, PROBE + b" " + row)
    truth.take(key, b"0 " + row)
    assert (truth.left, truth.probed) == (1, {key})
    for value in (b"0 " + row, b"1 " + row, b"0 " + RECORDS.row(RECORDS.key(1))):  # twice, of another key, wrong row
        with pytest.raises(WrongOutput):
            truth.take(key, value)


def test_gap_counts_if_it_reaches_into_the_time_between() -> None:
    times_ms = {b"a": [0, 900, 2100, 2200], b"b": [1000, 1050, 5000], b"only once": [1500]}
    assert longest_gaps_ms(times_ms, 1000, 4000) == [1200, 3950]
    assert longest_gaps_ms(times_ms, 2200, 4000) == [100, 3950]


def test_aims_compare_processor_time_of_the_same_run() -> None:
    case = Case("counts", COUNTS, 10, 1000, EXACTLY_ONCE)
    found = {
        name: Measured(1000, 1.0, seconds, 0.0, 1000) for name, seconds in ((OWN, 0.02), (FAUST, 0.1), (JAVA, 0.005))
    }
    faust, java = streams_peers.figures_of(case, found)
    assert (faust.met, java.met) == (True, False), "4 times Kafka Streams' is more than 3 times"
    (wrong,) = streams_peers.figures_of(case, {JAVA: found[JAVA]})
    assert not wrong.met, "this package's results were wrong"
    with console.capture() as captured:
        streams_peers.show(case, found, ())
    assert "5.00x" in captured.get()


@pytest.mark.costly
@pytest.mark.processes
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_results_of_own_applications_are_right(guarantee: str, tmp_path: Path) -> None:
    with running("anabranch") as cluster:
        for kind in KINDS:
            case = Case(kind, kind, 50, 400, guarantee)
            measured = streams_peers.run(OWN_PEER, case, cluster, tmp_path / kind, f"{kind}-{guarantee}")
            assert (measured.records, measured.results) == (400, 400)
            assert measured.processor_s > 0


@pytest.mark.costly
@pytest.mark.processes
def test_state_is_restored_and_handed_over(tmp_path: Path) -> None:
    with running("anabranch") as cluster:
        found = asyncio.run(streams_restore.run(OWN_PEER, cluster.bootstrap, tmp_path, 960))
    assert found.shared and len(found.gaps_ms) == 48
    assert len(streams_restore.figures_of({OWN: found, FAUST: found})) == 2


@pytest.mark.costly
@pytest.mark.processes
def test_counts_are_right_while_instances_and_partitions_come_and_go(tmp_path: Path) -> None:
    with running("anabranch") as cluster:
        steps = asyncio.run(streams_scaling.run(OWN_PEER, cluster.bootstrap, tmp_path, 960, 1, resize=True))
    assert [one.what for one in steps[1:]] == [
        "1 -> 4 instances, 4 -> 8 partitions",
        "4 -> 2 instances, 8 -> 6 partitions",
    ]
    assert all(one.shared and len(one.gaps_ms) == 48 for one in steps[1:])
