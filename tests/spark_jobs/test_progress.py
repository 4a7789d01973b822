"""Spark's progress of batches."""

from __future__ import annotations

from typing import Any

from anabranch.spark_jobs import progress

TOLD: dict[str, Any] = {
    "batchId": 4,
    "timestamp": "2026-11-21T11:36:37.220Z",
    "numInputRows": 30,
    "durationMs": {"triggerExecution": 1500},
    "stateOperators": [{"memoryUsedBytes": 700}, {"memoryUsedBytes": 50}],
    "sources": [{"endOffset": {"t": {"0": 5, "1": 7}}}, {"endOffset": '{"u": {"3": 9}}'}, {"endOffset": None}],
}


def test_batch_ends_when_its_trigger_has_run() -> None:
    found = progress.of_query(TOLD)
    assert found is not None
    assert (found.batch, found.records, found.duration_ms, found.state_bytes) == (4, 30, 1500, 750)
    assert found.ended_ms == 1_795_260_997_220 + 1500
    assert found.rate == 20


def test_progress_without_input_is_no_batch() -> None:
    assert progress.of_query({**TOLD, "numInputRows": 0}) is None


def test_offsets_are_read_from_both_forms_of_spark() -> None:
    assert progress.reached_offsets(TOLD) == {("t", 0): 5, ("t", 1): 7, ("u", 3): 9}
