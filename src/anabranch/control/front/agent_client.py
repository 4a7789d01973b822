"""Requests of the front to the control agent of one node, over HTTP. One of two modules that import aiohttp."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.openapi import EVENT_STREAM
from anabranch.control.route import WaitTimedOut
from anabranch.control.tls import PERHAPS_TLS, reason_of

ASK_S: Final = 5.0
"""How long an agent may take to answer; a process that is stopped never does."""
EVENT_MAX_BYTES: Final = 4 << 20
BODY_BYTES_MAX: Final = 1 << 30
ERRORS: Final[Mapping[int, type[Exception]]] = {400: ValueError, 404: UnknownNode, 408: WaitTimedOut}


class AgentUnreachable(ConnectionError):
    """The agent does not answer: its node has ended, is starting, or is frozen."""


def open_http(tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """A pool of connections for all agents; it uses no proxy of the environment. `tls` is for URLs with https."""
    connector = aiohttp.TCPConnector(ssl=True if tls is None else tls)
    return aiohttp.ClientSession(connector=connector, trust_env=False, read_bufsize=EVENT_MAX_BYTES)


class AgentClient:
    """The agent of one node.

    Args:
        http: The pool of connections.
        url: The agent's root URL.
        token: The agent's token.
        tls_only: Whether no request, and so no token, may be sent without TLS.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str, *, tls_only: bool = False) -> None:
        self._http = http
        self._tls_only = tls_only
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = ASK_S,
    ) -> Any:
        """Send one request; returns the decoded JSON, or the bytes of a file.

        Raises:
            AgentUnreachable: No response came, or not in time.
            ValueError: The agent refused the request as invalid.
            ActionRefused: The agent refused the request for another reason.
        """
        self._check_scheme()
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        options: dict[str, Any] = {"headers": self._headers, "params": query, "timeout": timeout}
        if body is not None:
            options["json"] = body
        try:
            async with self._http.request(method, self.url + path, **options) as answer:
                content, status, kind = await answer.read(), answer.status, answer.content_type
            found = json.loads(content) if kind == "application/json" and status < 400 else content
        except TimeoutError:
            within = "" if timeout_s is None else f" in {timeout_s:g} s"
            raise AgentUnreachable(f"the control agent at {self.url} does not answer{within}") from None
        except (aiohttp.ClientError, ValueError, RecursionError) as error:  # ZooKeeper may name any URL
            raise AgentUnreachable(f"the control agent at {self.url} does not answer: {_reason(error)}") from None
        if status >= 400:
            raise _refusal(status, content)
        return found

    async def follow(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Iterate over server-sent events: kind and data. Raises AgentUnreachable when the connection ends."""
        self._check_scheme()
        headers = {**self._headers, "Accept": EVENT_STREAM}
        try:
            async with self._http.get(
                self.url + path,
                headers=headers,
                params=query,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                if answer.status >= 400:
                    raise _refusal(answer.status, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *blocks, rest = (rest + chunk).split(b"\n\n")
                    for block in blocks:
                        kind, data = sent_event(block)
                        if data:
                            yield kind, json.loads(data)
                    if len(rest) > EVENT_MAX_BYTES:
                        raise ValueError(f"an event of more than {EVENT_MAX_BYTES:,} bytes")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise AgentUnreachable(f"the control agent at {self.url} has ended a stream: {_reason(error)}") from None
        raise AgentUnreachable(f"the control agent at {self.url} has ended a stream")

    def _check_scheme(self) -> None:
        """Raise ActionRefused for a URL that would send the token without TLS."""
        if self._tls_only and not self.url.startswith("https://"):
            raise ActionRefused(
                f"the control agent at {self.url} uses no TLS, and this front has a CA file for agents: start its node "
                "with --control-certificate"
            )


def sent_event(block: bytes) -> tuple[str, bytes]:
    """Parse a server-sent event without its blank line: its kind and data; empty data for a comment."""
    kind = data = b""
    for line in block.split(b"\n"):
        if line.startswith(b"data: "):
            data = line[6:]
        elif line.startswith(b"event: "):
            kind = line[7:]
    return kind.decode(), data


def _reason(error: Exception) -> str:
    """Why a request has no response, in one line."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)  # of aiohttp's errors
    if isinstance(cause, ssl.SSLError):
        return reason_of(cause)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return PERHAPS_TLS
    return repr(error)


def _refusal(status: int, content: bytes) -> Exception:
    reason = content.decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        reason = str(json.loads(content)["error"])
    return ERRORS.get(status, ActionRefused)(reason)
