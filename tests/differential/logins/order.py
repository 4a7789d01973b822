"""Requests before, amid and after a login, and frames without sense."""

from __future__ import annotations

import struct
from functools import partial

from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import request_of
from tests.differential.dialogue import Dialogue, Talk
from tests.differential.logins.scram import first_message
from tests.differential.logins.story import ME, log_in, plain_token, story


@story
async def mechanisms(talk: Talk) -> None:
    for mechanism in ("GSSAPI", "plain", "", "PLAIN ", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "x" * 1000):
        for version in (0, 1):
            async with talk.to("ALL") as peer:
                await peer.handshake(mechanism, version)
                await peer.ends()
    async with talk.to("SIGNED") as peer:
        await peer.handshake("PLAIN")
        await peer.ends()


@story
async def versions_before_the_login(talk: Talk) -> None:
    versions = ApiVersionsRequest(client_software_name="story", client_software_version="1")
    for version in range(4):
        async with talk.to("ALL") as peer:
            await peer.ask(versions, version)
            await log_in(peer)
            await peer.ask(versions, version)
    async with talk.to("ALL") as peer:
        await peer.ask(versions, 3)
        await peer.ask(versions, 3)
    api = BY_NAME["ApiVersions"]
    async with talk.to("ALL") as peer:  # a version that there is not: the answer names those that there are
        await peer.send(struct.pack(">ihhih5sb", 16, 18, 99, 7, 5, b"story", 0))
        await peer.answer(api, 0)
        await peer.ask(versions, 3)
        await log_in(peer)
    async with talk.to("ALL") as peer:
        await peer.ask(ApiVersionsRequest(client_software_name="a b", client_software_version="\n"), 3)
        await peer.ask(versions, 3)
        await peer.handshake("PLAIN")
        await peer.ask(versions, 3)
        await peer.ends()


@story
async def every_api_before_the_login(talk: Talk) -> None:
    for name, api in BY_NAME.items():
        if api.key not in talk.served or api.key in (17, 18):
            continue
        request = request_of(api, talk.served[api.key]).body
        async with talk.to("ALL") as peer:
            await peer.ask(request)
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN")
            if api.key != 36:
                talk.note("asked", name)
                await peer.ask(request)
                await peer.ends()


@story
async def out_of_order(talk: Talk) -> None:
    token = SaslAuthenticateRequest(auth_bytes=plain_token())
    async with talk.to("ALL") as peer:
        await peer.ask(token)
    async with talk.to("ALL") as peer:
        await peer.ask(ApiVersionsRequest(), 0)
        await peer.ask(token)
    async with talk.to("ALL") as peer:
        await peer.ask(ApiVersionsRequest(), 0)
        await peer.ask(ME)
    for versions in ((1, 1), (0, 1), (1, 0), (0, 0)):
        async with talk.to("ALL") as peer:
            for version in versions:
                await peer.handshake("PLAIN", version)
            await peer.ends()
    async with talk.to("ALL") as peer:
        await peer.handshake("PLAIN", 0)
        await peer.authenticate(plain_token())
    async with talk.to("ALL") as peer:
        await peer.handshake("PLAIN", 1)
        await peer.token(plain_token())
    async with talk.to("ALL") as peer:
        await peer.handshake("PLAIN")
        await peer.authenticate(first_message())
        await peer.ends()
    async with talk.to("ALL") as peer:
        await peer.handshake("SCRAM-SHA-256")
        await peer.authenticate(plain_token())
        await peer.ends()


async def untouched(peer: Dialogue) -> None:
    """Nothing was sent yet."""


async def handshaken(peer: Dialogue, version: int = 1) -> None:
    """The login has begun."""
    await peer.handshake("PLAIN", version)


@story
async def versions_that_there_are_not(talk: Talk) -> None:
    handshake = struct.pack(">hhih5sh5s", 17, 2, 1, 5, b"story", 5, b"PLAIN")
    authenticate = struct.pack(">hhih5sbb16sb", 36, 3, 1, 5, b"story", 0, 17, plain_token()[:16], 0)
    for frame in (handshake, authenticate, struct.pack(">hhih", 999, 0, 1, -1), struct.pack(">hhih", 3, 99, 1, -1)):
        for begin in (untouched, handshaken, log_in):
            async with talk.to("ALL") as peer:
                await begin(peer)
                await peer.send(struct.pack(">i", len(frame)) + frame)
                await peer.ends()


@story
async def frames_of_no_sense(talk: Talk) -> None:
    for data in (
        struct.pack(">i", -1),
        struct.pack(">i", 524_289),
        struct.pack(">i", 500 << 20),
        struct.pack(">i", 1 << 30),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 8) + struct.pack(">hhi", 17, 1, 1),
        struct.pack(">i", 12) + struct.pack(">hhihh", 17, 1, 1, -1, 400),
        struct.pack(">i", 12) + struct.pack(">hhihh", 17, 1, 1, -1, -1),
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    ):
        for begin in (untouched, handshaken, partial(handshaken, version=0)):
            async with talk.to("ALL") as peer:
                await begin(peer)
                await peer.send(data)
                await peer.ends()


@story
async def after_the_login(talk: Talk) -> None:
    async with talk.to("ALL") as peer:
        await log_in(peer)
        await peer.handshake("PLAIN")
        await peer.handshake("PLAIN", 0)
        await peer.handshake("WHAT")
        for version in (0, 1, 2):
            await peer.authenticate(plain_token(), version)
        await peer.ask(ME)
    async with talk.to("PLAINTEXT") as peer:
        await peer.handshake("PLAIN")
        await peer.handshake("PLAIN", 0)
        await peer.authenticate(plain_token())
        await peer.ask(ME)


@story
async def pipelined(talk: Talk) -> None:
    login = (SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslAuthenticateRequest(auth_bytes=plain_token()), 2)
    wrong = login[0], (SaslAuthenticateRequest(auth_bytes=plain_token(password="guessed")), 2)
    for requests in ((*login, (ME, 12), (ME, 1)), (*wrong, (ME, 12))):
        async with talk.to("ALL") as peer:
            await peer.send(b"".join(peer.encoded(request, version) for request, version in requests))
            for request, version in requests:
                api = next(one for one in BY_NAME.values() if one.request is type(request))
                if await peer.answer(api, version) is None:
                    break
    async with talk.to("ALL") as peer:
        token = plain_token()
        bare = peer.encoded(SaslHandshakeRequest(mechanism="PLAIN"), 0) + struct.pack(">i", len(token)) + token
        await peer.send(bare + peer.encoded(ME, 12))
        await peer.answer(BY_NAME["SaslHandshake"], 0)
        await peer.frame("bare token")
        await peer.answer(BY_NAME["Metadata"], 12)
