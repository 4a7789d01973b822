"""Login stories for Kafka's broker and Anabranch: right, wrong, altered, repeated, out of order, late.

ALL      SASL_PLAINTEXT with PLAIN, both SCRAMs, and OAUTHBEARER with unsigned tokens
SIGNED   SASL_PLAINTEXT with OAUTHBEARER, signed tokens for the audience `kafka` of one issuer
SHORT    SASL_PLAINTEXT with PLAIN and SCRAM-SHA-256, whose sessions last 1.6 s
TLS      SSL; MUTUAL: SSL with a client certificate
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.registry import BY_NAME
from tests.anabranch.faults.samples import request_of
from tests.differential.dialogue import Dialogue, Talk, scram_final
from tests.secured.certificates import Files, files
from tests.secured.issuer import Issuer, part

PASSWORD: Final = "wonderland"
SESSION_S: Final = 1.6
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ME: Final = MetadataRequest(topics=[], allow_auto_topic_creation=False)

Story = Callable[[Talk], Awaitable[None]]
STORIES: Final[list[Story]] = []


def story(told: Story) -> Story:
    """Put it among the others."""
    STORIES.append(told)
    return told


def plain_token(user: str = "alice", password: str = PASSWORD, acts_for: str = "") -> bytes:
    """The token of PLAIN."""
    return f"{acts_for}\0{user}\0{password}".encode()


# --- PLAIN


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
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token(), version)
            await peer.ask(ME)
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token(password="guessed"), version)
            await peer.ends()


# --- SCRAM


def first_message(user: str = "alice", nonce: str = "fyko+d2lbbFgONRv9qkxdawL", more: str = "") -> bytes:
    """The first message of SCRAM."""
    return f"n,,n={user},r={nonce}{more}".encode()


async def scram(peer: Dialogue, mechanism: str, first: bytes, password: str = PASSWORD, **altered: Any) -> None:
    """A login by SCRAM; whether the broker knows the password, too, is written down."""
    await peer.handshake(mechanism)
    challenge = await peer.authenticate(first)
    if challenge is None or challenge.error_code:
        await peer.ends()
        return
    final, expected = scram_final(mechanism, password, first, challenge.auth_bytes, **altered)
    done = await peer.authenticate(final)
    if done is None or done.error_code:
        await peer.ends()
        return
    peer.note("the broker's signature", done.auth_bytes == expected)
    await peer.ask(ME)


@story
async def scram_logins(talk: Talk) -> None:
    for mechanism in SCRAM:
        for password in (PASSWORD, "guessed", ""):
            async with talk.to("ALL") as peer:
                await scram(peer, mechanism, first_message(), password)
        for first in (
            first_message("nobody"),
            first_message("a=2Cb=3Dc"),
            first_message("ALICE"),
            first_message("alice", more=",ext=val"),
            first_message("alice", more=",tokenauth=true"),
            first_message("alice", more=",tokenauth=false"),
            first_message("alice", more=",tokenauth=yes,a=b"),
        ):
            async with talk.to("ALL") as peer:
                await scram(peer, mechanism, first)


@story
async def scram_first_messages(talk: Talk) -> None:
    for first in (
        b"n,a=alice,n=alice,r=nonce",
        b"n,a=bob,n=alice,r=nonce",
        b"n,a=al=2Cice,n=alice,r=nonce",
        b"n,,m=ext,n=alice,r=nonce",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,,n=alice,r=",
        b"n,,n=,r=nonce",
        b"n,,r=nonce,n=alice",
        b"n,,n=alice",
        b"n,,n=al=ice,r=nonce",
        b"n,,n=al=2cice,r=nonce",
        "n,,n=al\u00edce,r=nonce".encode(),
        b"n,,n=alice,r=non\xffce",
        b"n,,n=alice,r=nonce,",
        b"n,,n=alice,r=nonce,ext",
        b"n,,n=alice,r=nonce,1=2",
        b"n,,n=alice,r=nonce\n",
        b"",
        b"c=biws,r=nonce,p=cHJvb2Y=",
        b"n,,n=alice,r=" + b"n" * 50_000,
    ):
        async with talk.to("ALL") as peer:
            await peer.handshake("SCRAM-SHA-256")
            challenge = await peer.authenticate(first)
            if challenge is None or challenge.error_code:
                await peer.ends()


@story
async def scram_altered_final_messages(talk: Talk) -> None:
    """CVE-2024-56128 among them: the whole nonce must come back, whatever the proof is for."""
    first = first_message()

    def altering(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
        return lambda final: final.replace(old, new)

    proof = altering(b"p=", b"p=")
    changes: list[Callable[[bytes], bytes]] = [
        proof,
        altering(b"c=biws", b"c=eSws"),
        altering(b"c=biws", b"c="),
        altering(b"c=biws", b"c=b%ws"),
        altering(b"r=fyko", b"r=gyko"),
        altering(b",p=", b"x,p="),
        altering(b",p=", b",ext=val,p="),
        lambda final: final[: final.index(b",p=")],
        lambda final: final[: final.index(b"p=") + 2],
        lambda final: final[: final.index(b"p=")] + b"p=AAAA",
        lambda final: final[: final.index(b"p=")] + b"p=" + base64.b64encode(bytes(32)),
        lambda final: final[: final.index(b"p=")] + b"p=" + base64.b64encode(bytes(64)),
        lambda final: final[:-2],
        lambda final: final + b"=",
        lambda final: final + b",x=y",
        lambda final: final.upper(),
        lambda final: b"",
        lambda final: first,
        lambda final: final + b"\0",
    ]
    for mechanism in SCRAM:
        for change in changes:
            async with talk.to("ALL") as peer:
                await peer.handshake(mechanism)
                challenge = await peer.authenticate(first)
                final, _ = scram_final(mechanism, PASSWORD, first, challenge.auth_bytes)
                done = await peer.authenticate(change(final))
                if done is None or done.error_code:
                    await peer.ends()
        for altered in (
            {"binding": "eSws"},
            {"nonce": "another"},
            {"before": "more"},
            {"more": ",ext=val"},
            {"binding": ""},
        ):
            async with talk.to("ALL") as peer:
                await scram(peer, mechanism, first, **altered)


@story
async def scram_messages_played_again(talk: Talk) -> None:
    first = first_message()
    async with talk.to("ALL") as peer:
        await peer.handshake("SCRAM-SHA-512")
        challenge = await peer.authenticate(first)
        final, _ = scram_final("SCRAM-SHA-512", PASSWORD, first, challenge.auth_bytes)
        await peer.authenticate(final)
    async with talk.to("ALL") as peer:
        await peer.handshake("SCRAM-SHA-512")
        await peer.authenticate(first)
        await peer.authenticate(final)
        await peer.ends()
    async with talk.to("ALL") as peer:
        await peer.handshake("SCRAM-SHA-512")
        await peer.authenticate(final)
        await peer.ends()
    async with talk.to("ALL") as peer:
        await peer.handshake("SCRAM-SHA-512")
        await peer.authenticate(first)
        await peer.authenticate(first)
        await peer.ends()


@story
async def scram_in_bare_tokens(talk: Talk) -> None:
    first = first_message()
    for password in (PASSWORD, "guessed"):
        async with talk.to("ALL") as peer:
            await peer.handshake("SCRAM-SHA-256", 0)
            challenge = await peer.token(first)
            assert challenge is not None
            final, expected = scram_final("SCRAM-SHA-256", password, first, challenge)
            done = await peer.token(final)
            peer.note("the broker's signature", done == expected)
            if done is not None:
                await peer.ask(ME)


@story
async def delegation_tokens(talk: Talk) -> None:
    token_id, secret = talk.extra["token"]
    for mechanism in SCRAM:
        for user, password, more in (
            (token_id, secret, ",tokenauth=true"),
            (token_id, secret, ",tokenauth=TRUE"),
            (token_id, secret, ",tokenauth=true,ext=val"),
            (token_id, "guessed", ",tokenauth=true"),
            (token_id, secret, ""),
            ("AAAAAAAAAAAAAAAAAAAAAA", secret, ",tokenauth=true"),
            ("alice", PASSWORD, ",tokenauth=true"),
        ):
            async with talk.to("ALL") as peer:
                await scram(peer, mechanism, first_message(user, more=more), password)


# --- OAUTHBEARER


def unsigned(header: Any = None, **claims: Any) -> str:
    """An unsigned token."""
    now_s = int(time.time())
    told = {"sub": "alice", "exp": now_s + 600, "iat": now_s - 60, **claims}
    body = {name: one for name, one in told.items() if one is not None}
    return f"{standard(header or {'alg': 'none'})}.{standard(body)}."


def standard(content: Any) -> str:
    """A part of a token in the alphabet that Kafka's reader of unsigned tokens has."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.b64encode(raw + b" " * (-len(raw) % 3)).decode().replace("+", "").replace("/", "")


def shown(token: str, before: str = "n,,", after: str = "") -> bytes:
    """The first message of OAUTHBEARER."""
    return f"{before}\x01auth=Bearer {token}\x01{after}\x01".encode()


async def bearing(talk: Talk, listener: str, *messages: bytes) -> None:
    """A login with a token, and the client's answer to a refusal, in both handshake styles."""
    async with talk.to(listener) as peer:
        await peer.handshake("OAUTHBEARER")
        done = None
        for message in messages:
            done = await peer.authenticate(message)
            if done is None or done.error_code or not done.auth_bytes:
                break
        if done is None or done.error_code:
            await peer.ends()
        elif not done.auth_bytes:
            await peer.ask(ME)
    async with talk.to(listener) as peer:
        await peer.handshake("OAUTHBEARER", 0)
        for message in messages:
            answer = await peer.token(message)
            if answer is None:
                return
            if not answer:
                await peer.ask(ME)
                return


@story
async def unsigned_tokens(talk: Talk) -> None:
    now_s = int(time.time())
    for token in (
        unsigned(),
        unsigned(sub=None),
        unsigned(sub=""),
        unsigned(sub="  "),
        unsigned(sub=7),
        unsigned(sub=["alice"]),
        unsigned(exp=None),
        unsigned(exp=now_s - 1),
        unsigned(exp=str(now_s + 60)),
        unsigned(exp=True),
        unsigned(exp=now_s + 60.5),
        unsigned(iat=None),
        unsigned(iat=now_s + 60),
        unsigned(iat=now_s + 900),
        unsigned(iat="now"),
        unsigned(scope="kafka"),
        unsigned(scope=["a", "b"]),
        unsigned({"alg": "NONE"}),
        unsigned({"alg": "HS256"}),
        unsigned({"alg": None}),
        unsigned({"typ": "JWT"}),
        unsigned()[:-1],
        unsigned() + "c2lnbmVk",
        unsigned() + ".",
        "." + unsigned(),
        "..",
        "a.b.",
        "alice",
        f"{standard([])}.{standard({})}.",
        f"{standard({'alg': 'none'})}.{standard([1])}.",
        f"{standard({'alg': 'none'})}.{standard(b'null')}.",
    ):
        await bearing(talk, "ALL", shown(token), b"\x01")


@story
async def first_messages_of_oauthbearer(talk: Talk) -> None:
    token = unsigned()
    for message in (
        shown(token, "n,a=alice,"),
        shown(token, "n,a=bob,"),
        shown(token, "n,a=,"),
        shown(token, "y,,"),
        shown(token, "p=tls-unique,,"),
        shown(token, "n,"),
        shown(token, ""),
        shown(token, after="ext=val\x01other=word of it\x01"),
        shown(token, after="auth=Bearer x\x01"),
        shown(token, after="e1=val\x01"),
        shown(token, after="ext=\x01"),
        shown(token, after="ext\x01"),
        shown(token)[:-1],
        shown(token) + b"\x01",
        shown(""),
        shown(token).replace(b"Bearer", b"bearer"),
        shown(token).replace(b"Bearer", b"Basic"),
        shown(token).replace(b"Bearer ", b"Bearer  "),
        shown(token).replace(b"Bearer ", b"Bearer"),
        shown(token).replace(b"auth", b"Auth"),
        shown(token + " more"),
        b"n,,\x01host=kafka\x01\x01",
        b"n,,\x01\x01",
        b"\x01",
        b"",
        b"\xff\xfe",
    ):
        await bearing(talk, "ALL", message, b"\x01")


@story
async def what_follows_a_bad_token(talk: Talk) -> None:
    bad, good = unsigned(sub=None), unsigned()
    for answer in (b"\x01", b"\x02", b"", b"\x01\x01", shown(good), shown(bad), shown(good, "n,a=bob,")):
        await bearing(talk, "ALL", shown(bad), answer)
    await bearing(talk, "ALL", shown(bad), shown(bad), shown(good))
    await bearing(talk, "ALL", shown(bad), shown(bad), b"\x01")
    async with talk.to("ALL") as peer:
        await peer.handshake("OAUTHBEARER", 0)
        await peer.token(shown(bad))
        await peer.token(b"\x01")
    async with talk.to("ALL") as peer:
        await peer.handshake("OAUTHBEARER", 0)
        await peer.token(shown(good))
        await peer.ask(ME)


@story
async def signed_tokens(talk: Talk) -> None:
    issuer, other = talk.extra["issuer"], talk.extra["other"]
    now_s = int(time.time())
    public = json.dumps(issuer.public).encode()

    def token(by: Issuer = issuer, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        told = {"aud": "kafka", "iss": "https://issuer.example", "exp": now_s + 3600, **claims}
        return by.token(now_s, headers=headers, **told)

    good = token()
    head, body, signature = good.split(".")
    for shown_ in (
        good,
        token(aud=["elsewhere", "kafka"]),
        token(aud="elsewhere"),
        token(aud=[]),
        token(aud=None),
        token(aud=7),
        token(iss="https://other.example"),
        token(iss=None),
        token(exp=None),
        token(exp=int(time.time()) - 2),  # within the skew
        token(exp=now_s - 60),
        token(exp=str(now_s + 60)),
        token(iat=None),
        token(iat=now_s + 600),
        token(iat=now_s + 50),
        token(iat=now_s - 90_000),
        token(nbf=now_s + 600),
        token(nbf=now_s + 10),
        token(nbf=now_s - 10),
        token(sub=None),
        token(sub=""),
        token(sub=" "),
        token(sub=7),
        token(sub="bob the builder"),
        token(scope="a b"),
        token(scope=["a", "b"]),
        token(scope=["a", "a"]),
        token(scope=[""]),
        token(scope=7),
        token(headers={"kid": "unknown"}),
        token(headers={"typ": "at+jwt"}),
        token(headers={"crit": ["exp"], "exp": 1}),
        token(other),
        token(Issuer()),
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body}.{signature[:-4]}",
        f"{head}.{body}.{signature[:40]}",
        f"{head}.{body}.{signature[::-1]}",
        f"{head}.{part({'sub': 'admin', 'iat': now_s, 'exp': now_s + 60})}.{signature}",
        f"{part({'alg': 'none'})}.{body}.",
        f"{part({'alg': 'none', 'kid': 'one'})}.{body}.{signature}",
        f"{part({'alg': 'HS256', 'kid': 'one'})}.{body}.{part(public)}",
        f"{head[:-2]}.{body}.{signature}",
        f"{head}.{body[:-6]}.{signature}",
        good[:20],
        "a.b.c",
        ".",
        unsigned(),
    ):
        await bearing(talk, "SIGNED", shown(shown_), b"\x01")
    await bearing(talk, "SIGNED", shown(good, "n,a=alice,"))
    await bearing(talk, "SIGNED", shown(good, "n,a=bob,"))
    await bearing(talk, "SIGNED", shown(good, after="ext=val\x01"), b"\x01")
    await bearing(talk, "SIGNED", shown(token(exp=now_s - 60)), shown(good))


# --- what comes when


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
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token())
            await peer.ask(versions, version)
    async with talk.to("ALL") as peer:
        await peer.ask(versions, 3)
        await peer.ask(versions, 3)
    api = BY_NAME["ApiVersions"]
    async with talk.to("ALL") as peer:  # a version that there is not: the answer names those that there are
        await peer.send(struct.pack(">ihhih5sb", 16, 18, 99, 7, 5, b"story", 0))
        await peer.answer(api, 0)
        await peer.ask(versions, 3)
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
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


@story
async def versions_that_there_are_not(talk: Talk) -> None:
    handshake = struct.pack(">hhih5sh5s", 17, 2, 1, 5, b"story", 5, b"PLAIN")
    authenticate = struct.pack(">hhih5sbb16sb", 36, 3, 1, 5, b"story", 0, 17, plain_token()[:16], 0)
    for frame in (handshake, authenticate, struct.pack(">hhih", 999, 0, 1, -1), struct.pack(">hhih", 3, 99, 1, -1)):
        async with talk.to("ALL") as peer:
            await peer.send(struct.pack(">i", len(frame)) + frame)
            await peer.ends()
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN")
            await peer.send(struct.pack(">i", len(frame)) + frame)
            await peer.ends()
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token())
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
        async with talk.to("ALL") as peer:
            await peer.send(data)
            await peer.ends()
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN")
            await peer.send(data)
            await peer.ends()
        async with talk.to("ALL") as peer:
            await peer.handshake("PLAIN", 0)
            await peer.send(data)
            await peer.ends()


@story
async def after_the_login(talk: Talk) -> None:
    async with talk.to("ALL") as peer:
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
        await peer.handshake("PLAIN")
        await peer.handshake("PLAIN", 0)
        await peer.handshake("WHAT")
        for version in (0, 1, 2):
            await peer.authenticate(plain_token(), version)
        await peer.ask(ME)
    for listener in ("PLAINTEXT",):
        async with talk.to(listener) as peer:
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


# --- sessions


@story
async def a_session_is_renewed(talk: Talk) -> None:
    for version in (0, 1, 2):
        async with talk.to("SHORT") as peer:
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token(), version)
            await peer.handshake("PLAIN")  # at once
            await peer.authenticate(plain_token(), version)
            await peer.handshake("PLAIN")  # too soon after that
            await peer.ask(ME)
            await asyncio.sleep(1.1)
            await peer.handshake("PLAIN")
            await peer.authenticate(plain_token(), version)
            await asyncio.sleep(0.8)
            await peer.ask(ME)
    async with talk.to("SHORT") as peer:
        await scram(peer, "SCRAM-SHA-256", first_message())
        await asyncio.sleep(1.1)
        await scram(peer, "SCRAM-SHA-256", first_message())


@story
async def a_session_is_not_renewed(talk: Talk) -> None:
    async with talk.to("SHORT") as peer:
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
        await asyncio.sleep(SESSION_S + 0.2)
        await peer.ask(ME)
    async with talk.to("SHORT") as peer:
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
        await asyncio.sleep(SESSION_S + 0.2)
        await peer.ask(ApiVersionsRequest(), 0)
    async with talk.to("SHORT") as peer:
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
        await asyncio.sleep(SESSION_S + 0.2)
        await peer.authenticate(plain_token())
    async with talk.to("SHORT") as peer:
        await peer.handshake("PLAIN", 0)
        await peer.token(plain_token())
        await peer.ask(ME)
        await asyncio.sleep(SESSION_S + 0.2)
        await peer.ask(ME)
    async with talk.to("SHORT") as peer:  # it may still log in then
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
        await asyncio.sleep(SESSION_S + 0.2)
        await peer.handshake("PLAIN")
        await peer.authenticate(plain_token())
        await peer.ask(ME)


async def begun_again(peer: Dialogue, mechanism: str = "PLAIN", version: int = 1) -> None:
    """Logged in, and on the way of doing so once more."""
    await peer.handshake("PLAIN")
    await peer.authenticate(plain_token())
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
    async with talk.to("SHORT") as peer:
        await begun_again(peer)
        await peer.ask(ME)
        await peer.ends()
    async with talk.to("SHORT") as peer:
        await begun_again(peer)
        await peer.ask(ApiVersionsRequest(), 0)
        await peer.ends()
    async with talk.to("SHORT") as peer:
        await begun_again(peer)
        await peer.handshake("PLAIN")
        await peer.ends()
    async with talk.to("SHORT") as peer:
        await begun_again(peer)
        await peer.send(struct.pack(">i", 524_289))
        await peer.ends()
    async with talk.to("SHORT") as peer:  # and once more, too soon
        await begun_again(peer)
        await peer.authenticate(plain_token())
        await peer.handshake("PLAIN")
        await peer.ask(ME)


@story
async def sessions_of_tokens_that_end(talk: Talk) -> None:
    async with talk.to("ALL") as peer:
        await peer.handshake("OAUTHBEARER")
        await peer.authenticate(shown(unsigned(exp=time.time() + 2, iat=None)))
        await peer.ask(ME)
        await asyncio.sleep(2.2)
        await peer.ask(ME)
    async with talk.to("ALL") as peer:
        await peer.handshake("OAUTHBEARER")
        await peer.authenticate(shown(unsigned(exp=time.time() + 2, iat=None)))
        await asyncio.sleep(1.1)
        await peer.handshake("OAUTHBEARER")
        await peer.authenticate(shown(unsigned()))
        await asyncio.sleep(1.1)
        await peer.ask(ME)
    async with talk.to("ALL") as peer:
        await peer.handshake("OAUTHBEARER")
        await peer.authenticate(shown(unsigned(exp=time.time() + 5, iat=None)))
        await asyncio.sleep(1.1)
        await peer.handshake("OAUTHBEARER")
        await peer.authenticate(shown(unsigned(sub="bob")))
        await peer.ends()


# --- TLS


def trusting(**versions: ssl.TLSVersion) -> ssl.SSLContext:
    """A client of these versions."""
    context = ssl.create_default_context(cafile=str(files().ca))
    for name, version in versions.items():
        setattr(context, name, version)
    return context


async def reaching(talk: Talk, listener: str, context: ssl.SSLContext) -> None:
    """A TLS connection and its end; failures in OpenSSL's words."""
    try:
        async with talk.to(listener, context) as peer:
            await peer.send(peer.encoded(ME, 12))
            length = struct.unpack(">i", await asyncio.wait_for(peer._reader.readexactly(4), 20))[0]
            talk.note(listener, f"answered {length > 20}")
    except ssl.SSLError as error:
        talk.note(listener, str(error.reason))
    except (ConnectionError, asyncio.IncompleteReadError):
        talk.note(listener, "closed")


@story
async def tls(talk: Talk) -> None:
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for version in (old, new):
        context = trusting(minimum_version=version, maximum_version=version)
        await reaching(talk, "TLS", context)
        await reaching(talk, "MUTUAL", context)
        context.load_cert_chain(files().identity("alice"))
        await reaching(talk, "MUTUAL", context)
        await reaching(talk, "TLS", context)
        stranger = trusting(minimum_version=version, maximum_version=version)
        stranger.load_cert_chain(talk.extra["stranger"].identity("alice"))
        await reaching(talk, "MUTUAL", stranger)
        await reaching(talk, "TLS", stranger)
    await reaching(talk, "PLAINTEXT", trusting())
    await reaching(talk, "ALL", trusting())
    for listener in ("TLS", "MUTUAL"):
        async with talk.to(listener) as peer:
            await peer.send(peer.encoded(ME, 12))
            await peer.ends()
        async with talk.to(listener) as peer:
            await peer.handshake("PLAIN")


def strangers() -> Files:
    """Another authority's files."""
    folder = files().directory / "stranger"
    folder.mkdir(exist_ok=True)
    return Files(folder)
