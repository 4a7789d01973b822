"""Advertised versions pass unchanged, except versions too new to rewrite."""

from __future__ import annotations

import pytest

from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from anabranch.protocol.connection import decode_response
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.registry import BY_KEY
from anabranch.proxy.advertised_versions import LAST, cap_versions, unsupported_version_response
from tests.anabranch.proxy.test_addresses import frame_of

API = BY_KEY[18]


def answer(*rows: tuple[int, int, int], error: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in rows]
    features = [SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)]
    return ApiVersionsResponse(error_code=error, api_keys=keys, throttle_time_ms=9, supported_features=features)


@pytest.mark.parametrize("version", range(5))
def test_newer_versions_of_rewritten_apis_are_hidden(version: int) -> None:
    told = answer((0, 0, 99), (3, 0, 99), (8, 2, 99), (18, 0, 99), (75, 0, 0), (3000, 1, 2), (60, 90, 99))
    frame, ranges = cap_versions(frame_of(told, version), version)
    expected = {0: (0, LAST[0]), 3: (0, LAST[3]), 8: (2, 99), 18: (0, 4), 75: (0, 0), 3000: (1, 2)}
    assert ranges == expected, "of DescribeCluster all versions are newer than known"
    read = decode_response(frame, API, version)
    assert {one.api_key: (one.min_version, one.max_version) for one in read.api_keys} == expected
    assert read.throttle_time_ms == (9 if version else 0)
    assert [one.name for one in read.supported_features] == (["kraft.version"] if version >= 3 else [])


def test_response_without_newer_versions_is_unchanged() -> None:
    frame = frame_of(answer((0, 0, 9), (1, 4, 15)), 3)
    assert cap_versions(frame, 3)[0] == frame


def test_unsupported_api_versions_request_gets_version_0() -> None:
    frame = frame_of(answer((18, 0, 3), error=ErrorCode.UNSUPPORTED_VERSION), 0)
    assert cap_versions(frame, 4) == (frame, {18: (0, 3)})
    own = decode_response(unsupported_version_response(7), API, 4)
    assert own.error_code == ErrorCode.UNSUPPORTED_VERSION and own.api_keys[0].max_version == 4


@pytest.mark.parametrize("version", [0, 3])
def test_malformed_response_is_a_decode_error(version: int) -> None:
    frame = frame_of(answer((0, 0, 9), (1, 4, 15)), version)
    for cut in (5, 8, 11, 14):
        with pytest.raises(DecodeError):
            cap_versions(frame[:cut], version)
    with pytest.raises(DecodeError):
        cap_versions(frame[:6] + b"\x7f\xff\xff\xff" + frame[10:], 0)
