"""Logins by SCRAM, and by delegation tokens."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.differential.dialogue import Dialogue, Talk, scram_final
from tests.differential.logins.story import ME, PASSWORD, SCRAM, story


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
    for messages in ((first, final), (final,), (first, first)):
        async with talk.to("ALL") as peer:
            await peer.handshake("SCRAM-SHA-512")
            for message in messages:
                await peer.authenticate(message)
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
