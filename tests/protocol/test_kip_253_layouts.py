"""The two RPCs of KIP-253 in v0, byte for byte, written manually."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.protocol.apis import consumer_group_position as position
from anabranch.protocol.apis import partition_leader_epochs_for_partitions as epochs
from anabranch.protocol.codec import decode, encode


def text(value: str) -> str:
    return f"{len(value):04x}{value.encode().hex()}"


POSITION_REQUEST = position.ConsumerGroupPositionRequest(
    group_id="g",
    generation_id=7,
    member_id="m-1",
    topics=[
        position.ConsumerGroupPositionRequestTopic(
            topic="t",
            partitions=[
                position.ConsumerGroupPositionRequestPartition(partition=3, need_position=True, position=-1),
                position.ConsumerGroupPositionRequestPartition(partition=0, need_position=False, position=4096),
            ],
        )
    ],
)
POSITION_RESPONSE = position.ConsumerGroupPositionResponse(
    throttle_time_ms=5,
    topics=[
        position.ConsumerGroupPositionResponseTopic(
            topic="t",
            partitions=[
                position.ConsumerGroupPositionResponsePartition(partition=3, need_position=False, position=258)
            ],
        )
    ],
    error_code=25,
)
EPOCHS_REQUEST = epochs.PartitionLeaderEpochsForPartitionsRequest(
    topics=[epochs.PartitionLeaderEpochsForPartitionsRequestTopic(topic="t", partitions=[4, 5])]
)
EPOCHS_RESPONSE = epochs.PartitionLeaderEpochsForPartitionsResponse(
    throttle_time_ms=0,
    topics=[
        epochs.PartitionLeaderEpochsForPartitionsResponseTopic(
            topic="t",
            partitions=[
                epochs.PartitionLeaderEpochsForPartitionsResponsePartition(
                    partition=4, leader_epoch_after_creation=2, leader_epoch_before_deletion=-1
                )
            ],
        )
    ],
)

LAYOUTS = {
    "position request": (
        POSITION_REQUEST,
        [
            *(text("g"), "00000007", text("m-1"), "00000001", text("t"), "00000002"),
            *("00000003", "01", "ffffffffffffffff"),
            *("00000000", "00", "0000000000001000"),
        ],
    ),
    "position response": (
        POSITION_RESPONSE,
        ["00000005", "00000001", text("t"), "00000001", "00000003", "00", "0000000000000102", "0019"],
    ),
    "epochs request": (EPOCHS_REQUEST, ["00000001", text("t"), "00000002", "00000004", "00000005"]),
    "epochs response": (
        EPOCHS_RESPONSE,
        ["00000000", "00000001", text("t"), "00000001", "00000004", "00000002", "ffffffff"],
    ),
}


@pytest.mark.parametrize(("message", "layout"), LAYOUTS.values(), ids=LAYOUTS)
def test_v0_equals_layout_of_the_kip(message: Any, layout: list[str]) -> None:
    frame = bytes.fromhex("".join(layout))
    assert encode(message, 0) == frame
    assert decode(type(message), 0, frame) == (message, len(frame))
