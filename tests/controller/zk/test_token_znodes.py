"""Tokens are written as in Kafka, and all of its versions are read."""

from __future__ import annotations

import json

import pytest

from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.token_znodes import Token, decode, encode, path_of

TOKEN = Token(
    token_id="first",
    owner="User:alice:and,more",
    requester="User:carol",
    renewers=("User:bob",),
    issued_ms=1,
    expires_ms=2,
    max_ms=3,
)


def test_token_body_equals_that_of_kafka() -> None:
    assert path_of("first") == "/delegation_token/tokens/first"
    assert json.loads(encode(TOKEN)) == {
        "version": 3,
        "owner": "User%3Aalice%3Aand%2Cmore",
        "tokenRequester": "User%3Acarol",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "first",
    }
    assert decode("p", encode(TOKEN)) == TOKEN


@pytest.mark.parametrize("version", [1, 2])
def test_requester_of_old_version_is_the_owner(version: int) -> None:
    body = json.loads(encode(TOKEN)) | {"version": version}
    del body["tokenRequester"]
    assert decode("p", json.dumps(body).encode()).requester == TOKEN.owner


@pytest.mark.parametrize(
    "changed",
    [{"version": 4}, {"version": "3"}, {"owner": 1}, {"renewers": "User%3Abob"}, {"renewers": [1]}, {"tokenId": None}],
)
def test_malformed_token_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(MalformedZnode):
        decode("p", json.dumps(json.loads(encode(TOKEN)) | changed).encode())
