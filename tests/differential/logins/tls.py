"""TLS with and without client certificates."""

from __future__ import annotations

import asyncio
import ssl
import struct

from tests.differential.dialogue import Talk
from tests.differential.logins.story import ME, story
from tests.secured.certificates import Files, files


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
