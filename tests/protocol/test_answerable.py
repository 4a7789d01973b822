"""The lists of error codes name existing APIs and versions, and every API has one."""

from __future__ import annotations

from anabranch.protocol.answerable import ALLOWED, answerable
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import APIS, BY_NAME


def test_codes_belong_to_existing_apis_and_versions() -> None:
    for api, codes in ALLOWED.items():
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes and ErrorCode.NONE not in codes
        assert all(0 <= since <= BY_NAME[api].last_version for since in codes.values()), api


def test_every_api_returns_its_own_errors_and_those_of_its_resources() -> None:
    for api in APIS:
        codes = answerable(api.name, frozenset({"topic"}))
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes and ErrorCode.UNKNOWN_SERVER_ERROR in codes
        assert ErrorCode.GROUP_AUTHORIZATION_FAILED not in codes
        assert len(codes) > len(answerable("nothing", frozenset({"topic"}))), api.name
        assert all(0 <= since <= api.last_version for since in codes.values()), api.name


def test_code_added_in_a_version_requires_that_version() -> None:
    assert answerable("DescribeCluster", frozenset())[ErrorCode.MISMATCHED_ENDPOINT_TYPE] == 1
    assert answerable("Fetch", frozenset())[ErrorCode.FETCH_SESSION_ID_NOT_FOUND] == 7
