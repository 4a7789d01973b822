"""A topic with a too large znode is refused before any change."""

from __future__ import annotations

import pytest

from anabranch.controller import topic_size
from anabranch.controller.model import TopicBody
from anabranch.controller.zk import znodes
from anabranch.controller.zk.sizes import ZNODE_BYTES_MAX
from anabranch.protocol.errors import ErrorCode, KafkaError


def body(partitions: int) -> TopicBody:
    return znodes.decode_topic("", znodes.encode_topic(TopicBody(assignment=dict.fromkeys(range(partitions), (1,)))))


def test_excessive_partition_count_is_refused_without_allocation() -> None:
    topic_size.check_count("t", topic_size.PARTITIONS_MAX)
    with pytest.raises(KafkaError, match="Use fewer partitions") as refused:
        topic_size.check_count("t", 2**31 - 1)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_size_check_measures_the_encoded_znode() -> None:
    each = (len(znodes.encode_topic(body(20_000))) - len(znodes.encode_topic(body(10_000)))) / 10_000
    fits = int(ZNODE_BYTES_MAX / each * 0.9)
    topic_size.check("t", body(fits))
    with pytest.raises(KafkaError, match=f"The topic 't' would need [0-9,]+ bytes.*limit is {ZNODE_BYTES_MAX:,}"):
        topic_size.check("t", body(int(fits * 1.3)))
