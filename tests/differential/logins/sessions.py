"""Sessions that end, and logins within a session."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from tests.differential.dialogue import Dialogue, Talk
from tests.differential.logins.oauthbearer import shown, unsigned
from tests.differential.logins.scram import first_message, scram
from tests.differential.logins.story import ME, SESSION_S, log_in, plain_token, story


@story
async def a_session_is_renewed(talk: Talk) -> None:
    for version in (0, 1, 2):
        async with talk.to("SHORT") as peer:
            await log_in(peer, version)
            await peer.handshake("PLAIN")  # at once
            await peer.authenticate(plain_token(), version)
            await peer.handshake("PLAIN")  # too soon after that
            await peer.ask(ME)
            await asyncio.sleep(1.1)
            await log_in(peer, version)
            await asyncio.sleep(0.8)
            await peer.ask(ME)
    async with talk.to("SHORT") as peer:
        await scram(peer, "SCRAM-SHA-256", first_message())
        await asyncio.sleep(1.1)
        await scram(peer, "SCRAM-SHA-256", first_message())


@story
async def a_session_is_not_renewed(talk: Talk) -> None:
    too_late: tuple[Callable[[Dialogue], Awaitable[Any]], ...] = (
        lambda peer: peer.ask(ME),
        lambda peer: peer.ask(ApiVersionsRequest(), 0),
        lambda peer: peer.authenticate(plain_token()),
    )
    for act in too_late:
        async with talk.to("SHORT") as peer:
            await log_in(peer)
            await asyncio.sleep(SESSION_S + 0.2)
            await act(peer)
    async with talk.to("SHORT") as peer:
        await peer.handshake("PLAIN", 0)
        await peer.token(plain_token())
        await peer.ask(ME)
        await asyncio.sleep(SESSION_S + 0.2)
        await peer.ask(ME)
    async with talk.to("SHORT") as peer:  # it may still log in then
        await log_in(peer)
        await asyncio.sleep(SESSION_S + 0.2)
        await log_in(peer)
        await peer.ask(ME)


async def begun_again(peer: Dialogue, mechanism: str = "PLAIN", version: int = 1) -> None:
    """Logged in, and on the way of doing so once more."""
    await log_in(peer)
    await asyncio.sleep(1.1)
    await peer.handshake(mechanism, version)


@story
async def renewed_as_somebody_else(talk: Talk) -> None:
    for token in (plain_token("bob", "builder"), plain_token(password="guessed"), plain_token("nobody"), b"nonsense"):
        async with talk.to("SHORT") as peer:
            await begun_again(peer)
            await peer.authenticate(token)
            await peer.ends()
    for mechanism in ("SCRAM-SHA-256", "WHAT", "plain"):
        async with talk.to("SHORT") as peer:
            await begun_again(peer, mechanism)
            await peer.authenticate(first_message())
            await peer.ends()
    async with talk.to("SHORT") as peer:
        await begun_again(peer, version=0)
        await peer.token(plain_token())
        await peer.ask(ME)


@story
async def renewed_out_of_order(talk: Talk) -> None:
    in_between: tuple[Callable[[Dialogue], Awaitable[Any]], ...] = (
        lambda peer: peer.ask(ME),
        lambda peer: peer.ask(ApiVersionsRequest(), 0),
        lambda peer: peer.handshake("PLAIN"),
        lambda peer: peer.send(struct.pack(">i", 524_289)),
    )
    for act in in_between:
        async with talk.to("SHORT") as peer:
            await begun_again(peer)
            await act(peer)
            await peer.ends()
    async with talk.to("SHORT") as peer:  # and once more, too soon
        await begun_again(peer)
        await peer.authenticate(plain_token())
        await peer.handshake("PLAIN")
        await peer.ask(ME)


@story
async def sessions_of_tokens_that_end(talk: Talk) -> None:
    async def bear(peer: Dialogue, **claims: Any) -> None:
        await peer.handshake("OAUTHBEARER")
        await peer.authenticate(shown(unsigned(**claims)))

    async with talk.to("ALL") as peer:
        await bear(peer, exp=time.time() + 2, iat=None)
        await peer.ask(ME)
        await asyncio.sleep(2.2)
        await peer.ask(ME)
    async with talk.to("ALL") as peer:
        await bear(peer, exp=time.time() + 2, iat=None)
        await asyncio.sleep(1.1)
        await bear(peer)
        await asyncio.sleep(1.1)
        await peer.ask(ME)
    async with talk.to("ALL") as peer:
        await bear(peer, exp=time.time() + 5, iat=None)
        await asyncio.sleep(1.1)
        await bear(peer, sub="bob")
        await peer.ends()
