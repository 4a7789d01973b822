"""Task ids are those of Kafka Streams' state directories."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.task_id import TaskId


@pytest.mark.parametrize("text", ["0_3", "12_0", "name__0_3", "two__parts__0_3"])
def test_task_id_is_printed_as_parsed(text: str) -> None:
    assert str(TaskId.parse(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0_", "_1", "a_1", "__0_1", "0_1_2", "-1_0"])
def test_malformed_task_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a task"):
        TaskId.parse(text)


def test_task_ids_sort_by_topology_then_numbers() -> None:
    tasks = [TaskId(1, 0, "a"), TaskId(0, 10, "b"), TaskId(0, 9, "b"), TaskId(0, 0, "b"), TaskId(2, 0, "a")]
    assert [str(task) for task in sorted(tasks)] == ["a__1_0", "a__2_0", "b__0_0", "b__0_9", "b__0_10"]
