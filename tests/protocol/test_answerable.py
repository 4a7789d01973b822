"""The lists of error codes name existing APIs and versions, and every API has one."""

from __future__ import annotations

from anabranch.protocol.answerable import ALLOWED, answerable
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.registry import APIS, BY_NAME


def test_codes_are_allowed_to_apis_and_versions_that_exist() -> None:
    for api, codes in ALLOWED.items():
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes and ErrorCode.NONE not in codes
        assert all(0 <= since <= BY_NAME[api].last_version for since in codes.values()), api


def test_every_api_answers_errors_of_its_own_and_those_of_what_it_names() -> None:
    for api in APIS:
        codes = answerable(api.name, frozenset({"topic"}))
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes and ErrorCode.UNKNOWN_SERVER_ERROR in codes
        assert ErrorCode.GROUP_AUTHORIZATION_FAILED not in codes
        assert len(codes) > len(answerable("nothing", frozenset({"topic"}))), api.name
        assert all(0 <= since <= api.last_version for since in codes.values()), api.name


def test_a_code_that_came_with_a_version_is_one_of_that_version() -> None:
    assert answerable("DescribeCluster", frozenset())[ErrorCode.MISMATCHED_ENDPOINT_TYPE] == 1
    assert answerable("Fetch", frozenset())[ErrorCode.FETCH_SESSION_ID_NOT_FOUND] == 7
