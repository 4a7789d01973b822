"""Frames for fuzz tests: valid requests of every API and version, with a few changes."""

from __future__ import annotations

import struct

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from anabranch.broker.dispatch.dispatcher import HANDLERS, HandlerRow
from anabranch.broker.dispatch.request_context import version_range
from anabranch.protocol import codec
from tests.broker.serving import request_frame
from tests.cases import examples
from tests.protocol.messages import as_sent, values_of

RULING = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition", "CreateTopics"}
"""Requests that change the cluster when they happen to be valid."""


def fuzz(cases: int) -> settings:
    """So many cases with `--costly`, else a third of them; the same ones every time."""
    return exactly(examples(cases // 3, costly=cases))


def exactly(cases: int) -> settings:
    """So many cases, the same ones every time."""
    return settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        print_blob=False,
    )


def framed(frame: bytes) -> bytes:
    """With its length in front."""
    return struct.pack(">i", len(frame)) + frame


def header(row: HandlerRow, version: int) -> bytes:
    """The head of a request."""
    api = row.api
    if api.request_header_version(version) == 0:
        return struct.pack(">hhi", api.key, version, 1)
    return request_frame(api.key, version, flexible=api.flexible(version))


def mutated_frame(data: st.DataObject) -> bytes:
    """Bits flipped, bytes cut out or put in, ends cut off: the frame length stays right, the content does not."""
    row = data.draw(st.sampled_from([row for row in HANDLERS if row.name not in RULING]))
    version = data.draw(st.integers(0, version_range(row.versions)[1]))
    value = as_sent(data.draw(values_of(row.api.request)), version)
    frame = bytearray(header(row, version) + codec.encode(value, version))
    mutate(data, frame, first=8)
    return framed(bytes(frame))


def mutate(data: st.DataObject, frame: bytearray, first: int) -> None:
    """Make up to three changes from a position on."""
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(min(first, len(frame)), len(frame)))
        change = data.draw(st.sampled_from(["flip", "cut", "insert", "end"]))
        if change == "flip" and place < len(frame):
            frame[place] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "cut":
            del frame[place : place + data.draw(st.integers(1, 8))]
        elif change == "insert":
            frame[place:place] = data.draw(st.binary(min_size=1, max_size=8))
        elif change == "end":
            del frame[place:]


def mutated_frames(count: int) -> list[bytes]:
    """So many of them, for tests that are no functions of one."""
    found: list[bytes] = []

    @exactly(count)
    @given(data=st.data())
    def collect(data: st.DataObject) -> None:
        found.append(mutated_frame(data))

    collect()
    return found
