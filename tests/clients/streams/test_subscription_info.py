"""The subscription's encoding compared with Kafka Streams 3.9, and malformed bytes.

`golden/kafka-streams-3.9.jsonl` is what StreamsOracle.java prints: values and bytes of every version. Kafka numbers the
topics of a dictionary in the order of a hash table, so that only the bytes of one dictionary are sure to be the same:
the golden topics have names of which Kafka takes the first one first, as we do.
"""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from typing import Any

import pytest

from anabranch.clients.streams.assignment_info import (
    AssignmentInfo,
    Host,
    decode_assignment_info,
    encode_assignment_info,
)
from anabranch.clients.streams.subscription_info import (
    RUNNING,
    UNKNOWN_SUM,
    SubscriptionInfo,
    decode_subscription_info,
    encode_subscription_info,
)
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol import streams_protocol
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.streams_protocol import LATEST_VERSION, StreamsAssignment
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.oracle import GOLDEN, ask, jars_or_skip

VERSIONS = range(1, LATEST_VERSION + 1)
RECORDED = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
PROCESS = bytes(range(16))


def recorded(message: str) -> list[Any]:
    found = [pytest.param(one, id=f"v{one['values']['version']}") for one in RECORDED if one["message"] == message]
    assert len(found) == LATEST_VERSION
    return found


def partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def hosted(values: dict[str, list[str]]) -> dict[Host, tuple[TopicPartition, ...]]:
    made = {Host.parse(host): tuple(map(partition, partitions)) for host, partitions in values.items()}
    return {host: partitions for host, partitions in made.items() if host is not None}


def subscription(values: dict[str, Any]) -> SubscriptionInfo:
    sums = {TaskId.parse(task): offset_sum for task, offset_sum in values["task_offset_sums"].items()}
    return SubscriptionInfo(
        **{**values, "process_id": bytes.fromhex(values["process_id"]), "task_offset_sums": sums},
    )


def assignment(values: dict[str, Any]) -> AssignmentInfo:
    return AssignmentInfo(
        **{
            **values,
            "active_tasks": tuple(map(TaskId.parse, values["active_tasks"])),
            "standby_tasks": {
                TaskId.parse(task): tuple(map(partition, partitions))
                for task, partitions in values["standby_tasks"].items()
            },
            "partitions_by_host": hosted(values["partitions_by_host"]),
            "standby_partitions_by_host": hosted(values["standby_partitions_by_host"]),
        }
    )


@pytest.mark.parametrize("golden", recorded("subscription"))
def test_subscriptions_equal_kafka_bytes(golden: Any) -> None:
    wire, info = bytes.fromhex(golden["wire"]), subscription(golden["values"])
    assert decode_subscription_info(wire) == info
    assert encode_subscription_info(info) == wire


@pytest.mark.kafka_jars
def test_golden_bytes_are_those_of_kafka_streams() -> None:
    assert ask(jars_or_skip(), "golden") == RECORDED


@pytest.mark.parametrize("version", range(1, 7))
def test_old_subscription_versions_distinguish_only_active_and_standby(version: int) -> None:
    info = SubscriptionInfo(
        version=version,
        latest_supported_version=-1 if version < 3 else 6,
        process_id=PROCESS,
        task_offset_sums={TaskId(0, 1): RUNNING, TaskId(2, 0): 17, TaskId(0, 5): UNKNOWN_SUM},
    )
    read = decode_subscription_info(encode_subscription_info(info))
    assert read.running == {TaskId(0, 1)}
    assert read.standby == {TaskId(2, 0), TaskId(0, 5)}
    assert read.task_offset_sums[TaskId(2, 0)] == UNKNOWN_SUM


def test_subscription_of_newer_version_is_decoded_to_its_versions() -> None:
    wire = bytes.fromhex("0000000c0000000d") + b"whatever comes in version 12"
    read = decode_subscription_info(wire)
    assert (read.version, read.latest_supported_version, read.process_id) == (12, 13, b"")
    with pytest.raises(DecodeError, match="version 12 does not say what is supported"):
        decode_subscription_info(wire[:7])
    with pytest.raises(DecodeError, match="version 12, newest known 11"):
        decode_assignment_info(wire)


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("", "0 bytes are too few for a version"),
        ("000000", "3 bytes are too few"),
        ("00000000", "version 0"),
        ("ffffffff", "version -1"),
        ("0000000300000002" + "00" * 16 + "00" * 12, "version 3 is not between 1 and the newest supported, 2"),
        ("00000004ffffffff" + "00" * 16 + "00" * 12, "version 4 needs the newest supported version"),
        ("000000070000000b" + "00" * 16 + "00000000" + "7fffffff", "2147483647 elements cannot fit"),
        ("00000002" + "00" * 16 + "00" * 8 + "00000002ff", "length 2 with 1 bytes left"),
        ("00000002" + "00" * 16 + "00" * 8 + "00000001ff", "can't decode byte 0xff"),
        ("00000001" + "00" * 16 + "00" * 8 + "00", "1 bytes left over"),
    ],
)
def test_malformed_subscription_is_refused_in_one_line(wire: str, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_subscription_info(bytes.fromhex(wire))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("golden", RECORDED, ids=lambda one: f"{one['message']}-v{one['values']['version']}")
def test_every_truncation_is_refused_without_large_allocation(golden: Any) -> None:
    wire = bytes.fromhex(golden["wire"])
    decode = decode_subscription_info if golden["message"] == "subscription" else decode_assignment_info
    decode(wire)
    hostile = [wire[:size] for size in range(len(wire))]
    hostile += [wire[:at] + b"\x7f\xff\xff\xff" + wire[at + 4 :] for at in range(8, len(wire) - 4)]
    tracemalloc.start()
    try:
        for number, data in enumerate(hostile):
            try:
                decode(data)
            except DecodeError:
                continue
            assert number >= len(wire), f"{number} of {len(wire)} bytes were taken for all"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000


def test_field_unsupported_by_version_is_refused() -> None:
    named = {TaskId(0, 0, "a"): 1}
    for version in VERSIONS:
        latest = -1 if version < 3 else 11
        told = SubscriptionInfo(
            version=version, latest_supported_version=latest, process_id=PROCESS, task_offset_sums=named
        )
        given = AssignmentInfo(version=version, commonly_supported_version=latest, active_tasks=tuple(named))
        if version < 10:
            with pytest.raises(ValueError, match="named topologies need version 10"):
                encode_subscription_info(told)
            with pytest.raises(ValueError, match="named topologies need version 10"):
                encode_assignment_info(given)
        else:
            assert decode_subscription_info(encode_subscription_info(told)) == told
            assert decode_assignment_info(encode_assignment_info(given)) == given
    with pytest.raises(ValueError, match="versions 1 to 11, not 12"):
        streams_protocol.encode(StreamsAssignment(version=12, active_tasks=[], standby_tasks=[]))


def test_inconsistent_versions_are_refused() -> None:
    info = SubscriptionInfo(process_id=PROCESS)
    for version, latest in ((0, 11), (12, 11), (3, -1), (2, 1)):
        with pytest.raises(ValueError, match="version"):
            dataclasses.replace(info, version=version, latest_supported_version=latest)


def test_active_tasks_and_partitions_are_parallel_lists() -> None:
    info = AssignmentInfo(active_tasks=(TaskId(0, 0), TaskId(0, 1), TaskId(0, 0)))
    sides = [TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", 0)]
    assert info.partitions_of_tasks(sides) == {
        TaskId(0, 0): [TopicPartition("a", 0), TopicPartition("b", 0)],
        TaskId(0, 1): [TopicPartition("a", 1)],
    }
    with pytest.raises(ValueError, match="2 partitions for 3 active tasks"):
        info.partitions_of_tasks(sides[:2])
