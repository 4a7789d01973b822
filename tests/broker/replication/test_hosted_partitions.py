"""The replicas of one broker: found by place, topic and id, and removed at equal cost."""

from __future__ import annotations

import pytest

from anabranch.broker.replication.hosted_partitions import HostedPartitions
from anabranch.protocol.wire import ZERO_UUID
from tests.compiled_parts import stands_in_for

pytestmark = stands_in_for("anabranch.broker.replication.hosted_partitions")


class Hosted:
    """A partition, as far as it is looked at here."""

    def __init__(self, topic: str, index: int, topic_id: bytes, looks: list[int]) -> None:
        self.topic, self.index = topic, index
        self._topic_id, self._looks = topic_id, looks

    @property
    def topic_id(self) -> bytes:
        self._looks.append(self.index)
        return self._topic_id


def hosting(count: int, looks: list[int], topic_id: bytes = b"t" * 16) -> HostedPartitions:
    hosted = HostedPartitions()
    for index in range(count):
        hosted.add(Hosted("t", index, topic_id, looks))  # type: ignore[arg-type]
    return hosted


@pytest.mark.parametrize("count", [3, 300])
def test_removing_a_partition_visits_no_other(count: int) -> None:
    looks: list[int] = []
    hosted = hosting(count, looks)
    looks.clear()
    hosted.remove(hosted.by_place["t", 1])
    assert set(looks) == {1}
    assert [one.index for one in hosted.of_topic("t")] == [index for index in range(count) if index != 1]


def test_topic_id_is_known_until_its_last_partition_is_removed() -> None:
    hosted = hosting(3, [])
    hosted.add(Hosted("t", 7, b"u" * 16, []))  # type: ignore[arg-type]
    assert (hosted.name_of(b"t" * 16), hosted.name_of(b"u" * 16)) == ("t", "t")
    for index in (0, 2, 1):
        assert hosted.name_of(b"t" * 16) == "t"
        hosted.remove(hosted.by_place["t", index])
    assert hosted.name_of(b"t" * 16) is None, "a namesake with another id has come before the last one was gone"
    assert hosted.name_of(b"u" * 16) == "t"
    hosted.remove(hosted.by_place["t", 7])
    assert hosted.name_of(b"u" * 16) is None and not hosted.by_place and not hosted.of_topic("t")


def test_zero_topic_id_has_no_name() -> None:
    hosted = hosting(1, [], ZERO_UUID)
    assert hosted.name_of(ZERO_UUID) is None
    hosted.remove(hosted.by_place["t", 0])
