"""Kept bytes are those of the exchange; bytes that may contain secrets are not kept."""

from __future__ import annotations

import struct

from anabranch.journal.frames import frames_of
from tests.anabranch.faults.samples import by_name


def test_request_frame_has_its_correlation_id() -> None:
    request = by_name("Heartbeat", 4)
    frames = frames_of(request)
    assert frames is not None and frames.answered == b""
    assert struct.unpack_from(">ihhi", frames.request_bytes) == (
        len(frames.request_bytes) - 4,
        12,
        4,
        request.correlation_id,
    )


def test_frames_with_secrets_are_omitted() -> None:
    for name, version in (("SaslAuthenticate", 2), ("AlterUserScramCredentials", 0)):
        assert frames_of(by_name(name, version)) is None
