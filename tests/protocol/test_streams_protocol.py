"""Kafka Streams' member messages in every version, by both codecs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import codec, layout
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.streams_protocol import LATEST_VERSION, StreamsAssignment, StreamsSubscription
from tests.protocol.messages import as_received, as_sent, values_of

VERSIONS = range(1, LATEST_VERSION + 1)


@pytest.mark.parametrize("message", [StreamsSubscription, StreamsAssignment], ids=lambda one: one.__name__)
@given(data=st.data())
def test_generated_codec_equals_the_reference_at_every_version(message: type[Any], data: st.DataObject) -> None:
    value = data.draw(values_of(message))
    cut = data.draw(st.floats(0, 1, exclude_max=True))
    for version in VERSIONS:
        sent = as_sent(value, version)
        wire = layout.encode(sent, version)
        assert codec.encode(sent, version) == wire
        assert codec.decode(message, version, wire) == (as_received(sent, version), len(wire))
        assert layout.decode(message, version, wire) == (as_received(sent, version), len(wire))
        with pytest.raises(DecodeError):
            codec.decode(message, version, wire[: int(cut * len(wire))])
