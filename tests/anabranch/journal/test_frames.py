"""Kept bytes are those of the exchange; bytes that may contain secrets are not kept."""

from __future__ import annotations

import struct

from anabranch.journal.frames import Frames, add_response, frames_of
from anabranch.protocol.apis.create_delegation_token import CreateDelegationTokenResponse
from anabranch.protocol.apis.describe_delegation_token import DescribeDelegationTokenResponse
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


def test_exchange_whose_response_holds_a_secret_is_omitted() -> None:
    for name, version, kind in (
        ("CreateDelegationToken", 3, CreateDelegationTokenResponse),
        ("DescribeDelegationToken", 3, DescribeDelegationTokenResponse),
    ):
        request = by_name(name, version)
        assert frames_of(request) is not None
        assert add_response(Frames(b""), request, kind.__new__(kind)) is None
