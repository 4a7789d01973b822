from typing import Any

from anabranch.demo.progress import Story
from anabranch.spark_jobs.verdict import KINDS


def judged(topic: str, **changes: int) -> Story:
    story = Story(topic, total=10, began_ms=1000, ended_ms=9000)
    story.verdict = {"delivered": 10, "redelivered": 0} | dict.fromkeys(KINDS, 0) | changes
    story.acked = 10
    return story


def progress_of_job() -> Story:
    story = judged("job")
    lines: list[tuple[str, dict[str, Any]]] = [
        ("job-replay", {"event": "progress", "t": 1000, "sent": 0, "acked": 0, "failed": 0, "by_partition": {"0": 0}}),
        (
            "job-reader-1",
            {"event": "progress", "t": 2000, "delivered": {"0": 4}, "assigned": [0], "gates": ["job-1@1"]},
        ),
        ("job-reader-1", {"event": "revoked", "t": 2500, "partitions": [0]}),
        (
            "job-reader-2",
            {"event": "opened", "t": 2600, "key_epoch": "1@1", "partition": 1, "closed_ms": 2000, "opened_ms": 2530},
        ),
        (
            "job-replay",
            {"event": "done", "t": 3000, "sent": 10, "acked": 10, "failed": 0, "by_partition": {"0": 6, "1": 4}},
        ),
        ("job-reader-2", {"event": "progress", "t": 3500, "delivered": {"1": 4}, "assigned": [1], "gates": []}),
    ]
    for name, line in lines:
        story.take(name, line)
    story.note(2400, "resize", "job has 2 partitions", "2 partitions")
    return story


def test_progress_is_the_sum_of_all_processes() -> None:
    story = progress_of_job()
    assert (story.acked, story.delivered) == (10, 8)
    assert story.gates == {"job-reader-1": ["job-1@1"], "job-reader-2": []}
    assert story.acked_by_partition == {0: 6, 1: 4}


def test_repeated_records_do_not_stand_for_undelivered_ones() -> None:
    """The readers are stopped when all is delivered."""
    story = judged("job")
    for name, count in (("job-reader-1", 6), ("job-reader-2", 4)):
        read = {"event": "progress", "t": 2000, "delivered": {"0": count}, "assigned": [0], "gates": []}
        story.take(name, read)
    assert story.delivered == 6


def test_hand_off_is_measured_from_crossing_the_boundary() -> None:
    assert progress_of_job().hand_offs_ms() == [("1@1", 30)]
