"""The end of deliverable records below a cut: after markers, aborted and compacted records."""

from __future__ import annotations

import pytest

from anabranch.broker.storage.deliverable import deliverable_end
from anabranch.broker.storage.files import Files
from tests.broker.storage.batches import batch
from tests.broker.storage.logs import append, opened
from tests.broker.storage.test_cleaner import clean, put, records
from tests.broker.storage.test_cleaner import opened as compacted
from tests.broker.storage.test_log import end


def test_records_are_deliverable_up_to_the_cut(files: Files) -> None:
    log = opened(files)
    assert deliverable_end(log, 0) == 0
    for _ in range(40):
        append(log, batch(3))
    assert len(log.segments) > 1
    for cut in (3, 60, 120):
        assert deliverable_end(log, cut) == cut
    log.increment_log_start_offset(60)
    assert deliverable_end(log, 30) == 60, "nothing is left below the cut"


@pytest.mark.parametrize("commit", [True, False])
def test_markers_and_aborted_records_are_not_deliverable(files: Files, commit: bool) -> None:
    log = opened(files)
    append(log)
    append(log, batch(2, producer=(7, 0, 0), transactional=True))
    end(log, commit)
    assert log.log_end_offset == 4
    assert deliverable_end(log, 4) == (3 if commit else 1)
    append(log, batch(2, producer=(7, 0, 2), transactional=True))
    assert deliverable_end(log, 6) == 6, "it may still be committed"
    append(log, batch(1, producer=(8, 0, 0)))
    end(log, not commit)
    assert deliverable_end(log, 8) == 7
    assert deliverable_end(log, 6) == (6 if not commit else 3)


def test_compacted_records_are_not_deliverable(files: Files) -> None:
    log = compacted(files)
    for number in range(100):
        put(log, (b"a", b"%d" % number), (b"b", b"%d" % number))
    cut = log.log_end_offset
    for number in range(100):
        put(log, (b"a", b"%d" % number), (b"b" if number else b"c", b"%d" % number))
    clean(files, log)
    left = [offset for offset, _, _ in records(log)]
    for at in range(0, cut + 1, 10):
        assert deliverable_end(log, at) == max((one + 1 for one in left if one < at), default=0)
