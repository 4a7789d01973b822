"""A token's secret is its SCRAM password, for both mechanisms, and no other token's."""

from __future__ import annotations

import base64
from functools import partial

import pytest

from anabranch.broker.authentication.sasl_exchange import SaslRefused
from anabranch.broker.authentication.scram_server import ScramServer
from anabranch.broker.authentication.token_logins import token_login
from anabranch.broker.credentials.delegation_tokens import Tokens
from anabranch.broker.tasks.supervised_task import log_failure
from anabranch.clients.sasl import ScramLogin
from anabranch.controller.zk.memory import MemoryZooKeeper


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_delegation_token_secret_authenticates_its_owner(mechanism: str) -> None:
    tokens = Tokens("key", lambda: 1000, lifetime_max_ms=100, renewal_ms=50, sweep_s=3600)
    await tokens.watch(await MemoryZooKeeper().connect(), lambda: False, log_failure)
    mine = await tokens.create("User:alice", "User:alice", (), -1)
    other = await tokens.create("User:bob", "User:bob", (), -1)

    def server() -> ScramServer:
        return ScramServer(mechanism, lambda _: None, "server", partial(token_login, tokens, mechanism))

    def secret_of(token_id: str) -> str:
        return base64.b64encode(tokens.hmac_of(token_id)).decode()

    login, judge = ScramLogin(mechanism, mine.token_id, secret_of(mine.token_id), "n", by_token=True), server()
    proof = login.step(judge.step(login.first(), 0).answer)
    assert proof is not None
    step = judge.step(proof, 0)
    assert (step.user, step.expires_ms, step.by_token) == ("alice", 1050, True)
    assert login.step(step.answer) is None, "the broker knows the secret, too"
    login, judge = ScramLogin(mechanism, mine.token_id, secret_of(other.token_id), "n", by_token=True), server()
    proof = login.step(judge.step(login.first(), 0).answer)
    assert proof is not None
    with pytest.raises(SaslRefused):
        judge.step(proof, 0)
    for name, by_token in (("nobody", True), (mine.token_id, False)):
        with pytest.raises(SaslRefused):
            server().step(ScramLogin(mechanism, name, "x", "n", by_token=by_token).first(), 0)
    with pytest.raises(SaslRefused, match="unknown delegation token"):
        ScramServer(mechanism, lambda _: None, "n").step(login.first(), 0)
    await tokens.stop()
