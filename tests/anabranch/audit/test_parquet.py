"""A Parquet copy has what the audit's source reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from anabranch.audit import parquet
from anabranch.audit.delivery_log import Row
from anabranch.protocol import audit_mark


def test_rows_survive_the_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS", 2)
    mark = audit_mark.encode(1, 7)
    rows = [Row(b"k%d" % one, b"v", "t" if one else "u", one, one, 1_700_000_000_000 + one, mark) for one in range(5)]
    rows.append(Row(None, b"", "t", 9, 9, 0, audit_mark.NO_MARK))
    assert parquet.write(tmp_path / "x.parquet", rows) == {"t", "u"}
    found = pq.read_table(tmp_path / "x.parquet")
    assert found.schema == parquet.SCHEMA
    got = found.to_pylist()
    assert [(row["key"], row["partition"], row["offset"]) for row in got] == [row[:1] + row[3:5] for row in rows]
    assert got[1]["timestamp"].timestamp() == 1_700_000_000.001
    assert got[1]["headers"] == [{"key": audit_mark.HEADER, "value": mark}]
    assert got[-1]["headers"] is None
