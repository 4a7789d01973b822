"""The batches of a leader's response are checked up to the first invalid one."""

from __future__ import annotations

import pytest

from anabranch.broker.storage.replicated_run import ReplicatedRun, first_batch_around
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import MAGIC_POSITION, NO_TIMESTAMP
from tests.broker.storage.batches import NOW_MS, batch

FIRST = batch(2, at=(10, 3), timestamp_ms=NOW_MS + 9)
SECOND = batch(1, at=(14, 2))


def test_run_sums_up_its_batches() -> None:
    run = ReplicatedRun(FIRST + SECOND, 10)
    assert [header.base_offset for header in run.headers] == [10, 14]
    assert (run.first_offset, run.next_offset, run.record_count, run.size_bytes) == (10, 15, 3, len(FIRST + SECOND))
    assert (run.max_timestamp, run.latest_epoch, run.error) == (NOW_MS + 10, 3, None)


@pytest.mark.parametrize(
    ("invalid", "code"),
    [
        pytest.param(SECOND[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(
            SECOND[:MAGIC_POSITION] + b"\7" + SECOND[MAGIC_POSITION + 1 :], ErrorCode.CORRUPT_MESSAGE, id="magic"
        ),
        pytest.param(batch(1, at=(11, 1)), ErrorCode.UNKNOWN_SERVER_ERROR, id="offset of the first batch again"),
    ],
)
def test_run_ends_before_an_invalid_batch(invalid: bytes, code: ErrorCode) -> None:
    run = ReplicatedRun(FIRST + invalid + SECOND, 10)
    assert (len(run.headers), run.next_offset, run.size_bytes) == (1, 12, len(FIRST))
    assert run.error is not None and run.error.code is code


@pytest.mark.parametrize("records", [b"", FIRST[:-1], FIRST[:20]])
def test_incomplete_batch_is_ignored(records: bytes) -> None:
    run = ReplicatedRun(records, 10)
    assert (run.headers, run.first_offset, run.next_offset, run.size_bytes) == ([], 10, 10, 0)
    assert (run.max_timestamp, run.error) == (NO_TIMESTAMP, None)


@pytest.mark.parametrize(("offset", "is_around"), [(10, False), (11, True), (12, False)])
def test_first_batch_is_around_offsets_behind_its_first_one(offset: int, is_around: bool) -> None:
    found = first_batch_around(FIRST + SECOND, offset)
    assert (found is not None and found.base_offset == 10) is is_around


def test_invalid_first_batch_is_refused_only_around_the_offset() -> None:
    corrupt = FIRST[:-1] + b"?"
    assert first_batch_around(corrupt, 12) is None
    assert first_batch_around(b"x" * 100, 12) is None
    with pytest.raises(KafkaError):
        first_batch_around(corrupt, 11)
