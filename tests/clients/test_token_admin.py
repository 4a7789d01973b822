"""`Admin` creates and describes tokens, and sends no invalid principal."""

from __future__ import annotations

import pytest

from anabranch import Admin
from anabranch.cluster.in_process import Cluster
from tests.broker.credentials.test_delegation_tokens import ALICE, LISTENER, PROPERTIES


async def test_tokens_are_created_renewed_and_expired() -> None:
    async with (
        Cluster(1, listeners=[f"{LISTENER}://127.0.0.1:0"], properties=PROPERTIES) as cluster,
        Admin(cluster.bootstrap_servers, **ALICE) as alice,
    ):
        token = await alice.create_token(renewers=["User:bob"], max_lifetime_ms=60_000)
        assert await alice.describe_tokens() == await alice.describe_tokens(["User:alice"]) == [token]
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert await alice.expire_token(token.secret, 1000) < token.expires_ms
        assert await alice.renew_token(token.secret) == token.max_ms
        for wrong in ("bob", ":bob", "User:"):
            with pytest.raises(ValueError, match="is not a principal"):
                await alice.create_token(owner=wrong)
        await alice.expire_token(token.secret)
        assert await alice.describe_tokens() == []
