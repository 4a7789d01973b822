"""Logins by PLAIN."""

from __future__ import annotations

from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from tests.differential.dialogue import Talk
from tests.differential.logins.story import ME, PASSWORD, log_in, plain_token, story


@story
async def plain_tokens(talk: Talk) -> None:
    for token in (
        plain_token(),
        plain_token(acts_for="alice"),
        plain_token(acts_for="bob"),
        plain_token(password="guessed"),
        plain_token(password="guessed", acts_for="bob"),
        plain_token("nobody"),
        plain_token(""),
        plain_token(password=""),
        plain_token("", ""),
        plain_token("ALICE"),
        plain_token("alice "),
        plain_token() + b"\0",
        plain_token() + b"\0\0\0",
        b"alice\0wonderland",
        b"alice",
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0",
        b"\xff\xfe\0alice\0" + PASSWORD.encode(),
        b"\0\xff\0\xff",
        b"\0alice\0" + PASSWORD.encode() + b"\n",
        b"\0alice\0" + b"x" * 100_000,
    ):
        for version in (0, 1):
            async with talk.to("ALL") as peer:
                await peer.handshake("PLAIN", version)
                done = await (peer.token(token) if version == 0 else peer.authenticate(token))
                if done is not None and (version == 0 or not done.error_code):
                    await peer.ask(ME)
                else:
                    await peer.ends()


@story
async def every_version_of_the_login(talk: Talk) -> None:
    for version in (0, 1, 2):
        async with talk.to("ALL") as peer:
            await peer.ask(ApiVersionsRequest(client_software_name="story", client_software_version="1"), 3)
            await log_in(peer, version)
            await peer.ask(ME)
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token(password="guessed"), version)
            await peer.ends()
