"""Logins by OAUTHBEARER, with unsigned and signed tokens."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from tests.differential.dialogue import Talk
from tests.differential.logins.story import ME, story
from tests.secured.issuer import Issuer, part


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
