"""A connection with free requests that records responses and their times.

Two brokers are compared by what is heard, so what each draws by itself is put aside: nonces, salts, how long a session
lasts. How soon matters where somebody fails: at once, or after `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from anabranch.journal.comparison import Namer, plain
from anabranch.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from anabranch.protocol.apis.sasl_handshake import SaslHandshakeRequest
from anabranch.protocol.connection import ClientConnection, decode_response
from anabranch.protocol.registry import Api, api_of

DELAY_MS: Final = 700
"""`connection.failed.authentication.delay.ms` of both brokers."""
LATE_S: Final = 0.5
PATIENCE_S: Final = 20.0
CLOSED: Final = "closed"

Heard = tuple[str, Any]


class Dialogue:
    """One connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: list[Heard],
        served: Mapping[int, int],
    ) -> None:
        self._reader, self._writer, self._heard, self._served = reader, writer, heard, served
        self._encoder = ClientConnection("story")
        self._namer = Namer("nothing is called so")
        self._late = False

    def note(self, what: str, content: Any) -> None:
        """Write something down."""
        self._heard.append((what, content))

    def _hear(self, what: str, content: Any) -> None:
        self.note(f"{what}, late" if self._late else what, content)

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    def encoded(self, request: Any, version: int) -> bytes:
        """A request with its header and length."""
        return b"".join(bytes(one) for one in self._encoder.request(request, version)[1])

    async def ask(self, request: Any, version: int | None = None, *, over: bytes | None = None) -> Any:
        """Send a request, and write down its answer. `over`: these bytes in place of it."""
        api = api_of(type(request))
        chosen = self._served[api.key] if version is None else version
        await self.send(self.encoded(request, chosen) if over is None else over)
        return await self.answer(api, chosen)

    async def answer(self, api: Api, version: int) -> Any:
        """The answer to a request that was sent."""
        what = f"{api.name} v{version}"
        frame = await self.frame(what)
        if frame is None:
            return None
        response = decode_response(frame, api, version)
        self._hear(what, self._plain(response, version))
        return response

    async def token(self, token: bytes) -> bytes | None:
        """Send a bare token, and write down the one that comes back."""
        await self.send(struct.pack(">i", len(token)) + token)
        answer = await self.frame("bare token")
        if answer is not None:
            self._hear("bare token", masked(answer))
        return answer

    async def ends(self) -> None:
        """Record that the broker closes, or its response."""
        frame = await self.frame("the end")
        if frame is not None:
            self._hear("the end", frame.hex())

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        """Begin a login."""
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, token: bytes, version: int = 2) -> Any:
        """The next token of it."""
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    async def frame(self, what: str) -> bytes | None:
        """The next frame; None, and a note, at the end of the connection."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(PATIENCE_S):
                length = struct.unpack(">i", await self._reader.readexactly(4))[0]
                frame = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            self.note(what, f"{CLOSED} {_soon(loop.time() - began_s)}")
            return None
        except TimeoutError:
            self.note(what, "silence")
            return None
        self._late = loop.time() - began_s > LATE_S
        return frame

    def _plain(self, response: Any, version: int) -> Any:
        if isinstance(response, SaslAuthenticateResponse):
            return {
                "error": response.error_code,
                "says": response.error_message,
                "token": masked(response.auth_bytes),
                "session ends": response.session_lifetime_ms > 0,
            }
        content = plain(response, version, self._namer)
        if "mechanisms" in content:
            content["mechanisms"].sort()  # Kafka's come out of a hash table
        return content


def _soon(took_s: float) -> str:
    return "late" if took_s > LATE_S else "at once"


def masked(token: bytes) -> str:
    """A token of the broker's, without what it has drawn."""
    text = token.decode(errors="replace")
    if text.startswith("r="):
        nonce, salt, iterations = text.split(",")
        return f"{nonce[:6]}..., {salt[:2]}..., {iterations}"
    return "v=..." if text.startswith("v=") else text


class Talk:
    """A broker whose listeners a story may go to, and all that was heard."""

    def __init__(self, ports: Mapping[str, int], served: Mapping[int, int], extra: Mapping[str, Any]) -> None:
        self._ports = ports
        self.served = served
        self.extra = extra
        """What stories need to know of this broker."""
        self.heard: list[list[Heard]] = []
        """Of each connection."""

    @contextlib.asynccontextmanager
    async def to(self, listener: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Dialogue]:
        """A connection to a listener."""
        self.heard.append([])
        host = "localhost" if context is not None else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._ports[listener], ssl=context, server_hostname=host
        )
        try:
            yield Dialogue(reader, writer, self.heard[-1], self.served)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def note(self, what: str, content: Any) -> None:
        """Write something down, of the last connection."""
        self.heard[-1].append((what, content))


def scram_final(
    mechanism: str,
    password: str,
    first: bytes,
    challenge: bytes,
    *,
    binding: str = "biws",
    nonce: str = "",
    before: str = "",
    more: str = "",
) -> tuple[bytes, bytes]:
    """The last message of a client that knows the password, and what the broker's has to be."""
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    told = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(told["s"]), int(told["i"]))
    key = hmac.digest(salted, b"Client Key", digest)
    unproved = f"c={binding},r={before}{nonce or told['r']}"
    bare = first.split(b",", 2)[2]
    signed = b",".join([bare, challenge, unproved.encode()])
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    expected = b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest))
    return f"{unproved}{more},p={base64.b64encode(proof).decode()}".encode(), expected
