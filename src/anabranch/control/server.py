"""Serves the control plane over HTTP, on the loop of the cluster. The one module that knows aiohttp.

Refusals: 400 for what nobody could do, 401 without the token, 404 for what is not there, 408 for a wait that was given
up or a body that does not arrive, 409 for what cannot be done now, 413 for a body that is too large; each with
`{"error": "..."}`. A bug is 500, and a traceback in the log. Whatever a request raises before its handler runs, such as
a header that cannot be parsed, is answered by the same rules: a middleware surrounds every path.

Work that changes the cluster runs to its end when its client disconnects: half a restore would leave brokers stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any, Final, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import Controllable, ControlledCluster
from anabranch.control.json_body import check_fields, parse_object
from anabranch.control.openapi import document
from anabranch.control.pages import AccessControl, page_file, policy
from anabranch.control.route import FILE_BYTES_MAX, ControlRequest, Route, WaitTimedOut
from anabranch.control.routes import ROUTES
from anabranch.control.tour.guide import Guide
from anabranch.dashboard.feed import Feed
from anabranch.protocol.errors import KafkaError

T = TypeVar("T")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

log: Final = logging.getLogger(__name__)
LOGIN_BYTES_MAX: Final = 4096

BODY_TIMEOUT_S: Final = 30.0
"""How long a client may send nothing of a body that it has announced."""
LINGER_S: Final = 1.0
"""How long the rest of a refused body is read, so that its client sees the refusal and no reset."""
NOT_HTTP_CHARS_SHOWN: Final = 200
REASON_CHARS_MAX: Final = 2000
SHUTDOWN_S: Final = 0.5
"""How long a stop waits for requests under way: those that follow events never end by themselves."""
EVENT_STREAM: Final = "text/event-stream"
INDEX: Final = "index.html"
STATUS: Final[dict[type[Exception], int]] = {
    ValueError: 400,
    KafkaError: 400,
    UnknownNode: 404,
    WaitTimedOut: 408,
    ActionRefused: 409,
    ConnectionError: 409,
    TimeoutError: 409,
}


class ControlServer:
    """Answers on a socket that listens already."""

    def __init__(
        self,
        controlled: ControlledCluster | Controllable,
        listener: socket.socket,
        token: str = "",
        routes: Sequence[Route] = ROUTES,
        file_bytes_max: int = FILE_BYTES_MAX,
    ) -> None:
        """A cluster of ours has the dashboard, too."""
        self._routes = routes
        self._streams = {"/v1/events": self._follow}
        self._feed: Feed | None = None
        self._guide: Guide | None = None
        if isinstance(controlled, ControlledCluster):
            feed = self._feed = Feed(controlled.cluster, controlled.clock, controlled.events.publish)
            controlled.events.on_event(feed.on_event)
            self._guide = Guide()
            controlled = dataclasses.replace(controlled, feed=feed, guide=self._guide)
            self._streams["/v1/watch"] = self._watch
        self._public: set[Answer] = {self._page, self._log_in}
        """What a browser needs before it has shown the token."""
        self._controlled = controlled
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self._admission = AccessControl(token, local=ipaddress.ip_address(host).is_loopback, port=port)
        self._file_bytes_max = file_bytes_max
        self._work: set[asyncio.Task[Any]] = set()
        app = web.Application(middlewares=[_middleware(self._guard)])
        app.router.add_get("/v1/openapi.json", self._openapi)
        if self._feed is not None:
            app.router.add_get("/", self._page)
            app.router.add_get("/dashboard/{name:.+}", self._page)
        app.router.add_post("/v1/login", self._log_in)
        for route in routes:
            app.router.add_route(route.method, route.path, self._answering(route))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
            lingering_time=LINGER_S,
            logger=_http_log(),
            auto_decompress=False,  # a limit of a body is a limit of what it inflates to
        )

    async def start(self) -> None:
        """Take requests, those first that came while nobody answered."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def stop(self) -> None:
        """Take no more requests, and end those under way."""
        await self._runner.cleanup()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._guide is not None:
            await self._guide.end()
        if self._feed is not None:
            await self._feed.stop()

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.json_response(document(self._routes, version("anabranch")))

    def _answering(self, route: Route) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            asked = await self._asked(request, route)
            if route.path in self._streams and EVENT_STREAM in request.headers.get("Accept", ""):
                return await self._streams[route.path](request)
            work = route.handler(self._controlled, asked)
            done = await (work if route.waits else self._finished(self._controlled.run(work)))
            return web.Response(body=done) if isinstance(done, bytes) else web.json_response(done)

        return answer

    async def _guard(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Admit a request, and turn what it raises into a refusal. Also runs for paths that do not exist."""
        try:
            if request.match_info.handler in self._public:
                refused = self._admission.foreign(request.headers)
            else:
                refused = self._admission.refusal(request.headers, request.cookies)
            return await handler(request) if refused is None else _refusal(*refused)
        except web.HTTPException as error:
            return _refusal(error.status, error.text or error.reason, error.headers.get("Allow", ""))
        except tuple(STATUS) as error:
            status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
            return _refusal(status, str(error) or type(error).__name__)
        except Exception:
            log.exception("bug in the control plane: %s %s", request.method, request.path)
            return _refusal(500, "a bug; the log tells more")

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that is not cancelled with its request."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._on_finished)
        return await asyncio.shield(task)

    def _on_finished(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a request was refused: %s", error)

    async def _asked(self, request: web.Request, route: Route) -> ControlRequest:
        if not route.takes_file:
            body = parse_object(await _content(request, route.body_bytes_max))
            check_fields(body, route.body)
            return ControlRequest(request.match_info, request.query, body)
        content = await _content(request, self._file_bytes_max)
        return ControlRequest(request.match_info, request.query, {}, content, self._file_bytes_max)

    async def _page(self, request: web.Request) -> web.Response:
        """A file of the dashboard, which holds nothing secret."""
        found = page_file(request.match_info.get("name", INDEX))
        if found is None:
            return _refusal(404, "the dashboard has no such file")
        content, kind = found
        headers = {"Content-Type": kind, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        if kind.startswith("text/html"):
            headers |= {"Content-Security-Policy": policy(content.decode()), "Referrer-Policy": "no-referrer"}
        return web.Response(body=content, headers=headers)

    async def _log_in(self, request: web.Request) -> web.Response:
        """Give a browser a cookie for the token."""
        session = self._admission.log_in(parse_object(await _content(request, LOGIN_BYTES_MAX)).get("token"))
        if session is None:
            return _refusal(401, "that is not the token that was given by --control-token")
        response = web.json_response({})
        response.set_cookie(self._admission.cookie, session, httponly=True, samesite="Strict", path="/")
        return response

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, from the one on that the client has seen last."""
        seen = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
        if not seen.isdecimal():
            raise ValueError(f"an event's number is expected, not {seen!r}")
        response = await _stream(request)
        async for event in self._controlled.events.follow(int(seen)):
            row = json.dumps(event.row(), default=str)
            await response.write(f"id: {event.number}\nevent: {event.kind}\ndata: {row}\n\n".encode())
        return response

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """What a page shows, as server-sent events: the whole state, then what changes."""
        response = await _stream(request)
        assert self._feed is not None, "who has none cannot be watched"
        async with contextlib.aclosing(self._feed.follow()) as messages:
            async for kind, body in messages:
                await response.write(f"event: {kind}\ndata: {body}\n\n".encode())
        return response


class _PeerErrors(logging.Filter):
    """Makes one line of what a client did wrong: aiohttp logs it with a traceback, as if it were a bug."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            reason = " ".join(error.message.split())[:NOT_HTTP_CHARS_SHOWN]
            record.msg, record.args, record.exc_info = "a request to the control plane is no HTTP: %s", (reason,), None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return not isinstance(error, ConnectionError)


def _http_log() -> logging.Logger:
    logger = logging.getLogger(f"{__name__}.http")
    if not logger.filters:
        logger.addFilter(_PeerErrors())
    return logger


def _middleware(guard: Callable[[web.Request, Answer], Awaitable[web.StreamResponse]]) -> Any:
    """Make a middleware of a method: aiohttp marks functions, and a bound method takes no mark."""

    @web.middleware
    async def middleware(request: web.Request, handler: Answer) -> web.StreamResponse:
        return await guard(request, handler)

    return middleware


async def _stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


def _refusal(status: int, reason: str, allow: str = "") -> web.Response:
    headers = {"Allow": allow} if allow else {}
    return web.json_response({"error": reason[:REASON_CHARS_MAX]}, status=status, headers=headers)


async def _content(request: web.Request, bytes_max: int) -> bytes:
    """Read a body of at most so many bytes, each part of which arrives in time."""
    if not request.can_read_body:
        return b""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise web.HTTPUnsupportedMediaType(reason="a body is sent without Content-Encoding")
    if (request.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    content = bytearray()
    while True:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                part = await request.content.readany()
        except TimeoutError:
            raise web.HTTPRequestTimeout(reason=f"nothing of the body came for {BODY_TIMEOUT_S:g} s") from None
        if not part:
            return bytes(content)
        content += part
        if len(content) > bytes_max:
            raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> web.HTTPException:
    return web.HTTPRequestEntityTooLarge(bytes_max, reason=f"the body is larger than {bytes_max} bytes")
