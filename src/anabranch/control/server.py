"""The HTTP server of the control plane, on the cluster's event loop. Only `front.agent_client` imports aiohttp, too.

Refusals: 400 for an invalid request, 401 without the token, 404 for an unknown object, 408 for a wait that timed out or
a body that does not arrive, 409 for an action that is impossible now, 413 for a body that is too large; each with
`{"error": "..."}`. A bug is 500, with a traceback in the log. Errors before the handler, such as an invalid header,
follow the same rules: a middleware wraps every path.

Work that changes the cluster completes even if its client disconnects: half a restore would leave brokers stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, get_type_hints

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import Controllable, HasDashboard
from anabranch.control.json_body import check_fields, check_names, parse_object
from anabranch.control.openapi import EVENT_STREAM, document, response_type, route_schemas
from anabranch.control.pages import AccessControl, page_file, policy
from anabranch.control.route import FILE_BYTES_MAX, ControlRequest, Route, WaitTimedOut
from anabranch.control.routes import ROUTES
from anabranch.control.tour.guide import Guide
from anabranch.control.unknown_path import unknown_path
from anabranch.faults.rule_fields import RuleFields
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.control.events import Event
    from anabranch.dashboard.feed import Feed

T = TypeVar("T")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

log: Final = logging.getLogger(__name__)
LOGIN_BYTES_MAX: Final = 4096

BODY_TIMEOUT_S: Final = 30.0
"""How long a client may pause while it sends a body."""
IDLE_TIMEOUT_S: Final = 120.0
"""How long a connection may be without a complete request header: before its first request, or after a response."""
LINGER_S: Final = 1.0
"""How long the rest of a refused body is read, so that the client gets the response instead of a reset."""
NOT_HTTP_CHARS_SHOWN: Final = 200
REASON_CHARS_MAX: Final = 2000
SHUTDOWN_S: Final = 0.5
EVENTS_AT_ONCE: Final = 500
"""How long a stop waits for open requests: event streams never end by themselves."""
INDEX: Final = "index.html"
DOCS: Final = "docs/index.html"
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
    """Serves requests on a socket that already listens."""

    def __init__(
        self,
        controlled: Controllable,
        listener: socket.socket,
        token: str = "",
        routes: Sequence[Route] = ROUTES,
        file_bytes_max: int = FILE_BYTES_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create the server; a cluster has a dashboard, too."""
        self._tls = tls
        self._routes = routes
        self._streams = {"/v1/events": self._follow}
        self._feed: Feed | None = None
        self._guide: Guide | None = None
        if isinstance(controlled, HasDashboard):
            self._guide = Guide()
            controlled, self._feed = controlled.open_dashboard(self._guide)
            self._streams["/v1/watch"] = self._watch
        self._public: set[Answer] = {self._page, self._docs, self._log_in}
        """The handlers that need no token."""
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
        app.router.add_get("/docs", self._docs)
        app.router.add_get("/dashboard/{name:.+}", self._page)
        app.router.add_post("/v1/login", self._log_in)
        for route in routes:
            app.router.add_route(route.method, route.path, self._answering(route))
        self._paths = [one.canonical for one in app.router.resources()]
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=IDLE_TIMEOUT_S,
            lingering_time=LINGER_S,
            logger=_http_log(),
            auto_decompress=False,  # so that the size limit applies to the inflated body
        )

    async def start(self) -> None:
        """Start serving, beginning with connections that already wait."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener, ssl_context=self._tls).start()

    async def stop(self) -> None:
        """Stop serving, end the open requests, and let go of the cluster: aiohttp caches handlers of 1024 servers."""
        await self._runner.cleanup()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._guide is not None:
            await self._guide.end()
        if self._feed is not None:
            await self._feed.stop()
        del self._controlled, self._guide, self._feed

    async def _openapi(self, request: web.Request) -> web.Response:
        url = f"{request.scheme}://{request.host}"
        return web.json_response(document(self._routes, version("anabranch"), url))

    def _answering(self, route: Route) -> Answer:
        fields = {} if route.body is None else route_schemas().properties(route.body)
        is_refused = response_type(route) is NoReturn  # with a better reason than a wrong field
        parameters = None if route.checks_query or is_refused else get_type_hints(route.query)

        async def answer(request: web.Request) -> web.StreamResponse:
            if parameters is not None:
                check_names(request.query, parameters, request.path, "parameter")
            control_request = await self._control_request(request, route, None if is_refused else fields)
            if EVENT_STREAM in request.headers.get("Accept", ""):
                if route.path in self._streams:
                    return await self._streams[route.path](request)
                if route.stream is not None:
                    return await _send_rows(request, route.stream(self._controlled, control_request))
            work = route.handler(self._controlled, control_request)
            done = await (work if route.waits else self._finish(self._controlled.run(work)))
            return web.Response(body=done) if isinstance(done, bytes) else web.json_response(done)

        return answer

    async def _guard(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Authorize a request, and turn exceptions into refusals. Also runs for unknown paths."""
        try:
            if request.match_info.handler in self._public:
                refused = self._admission.foreign(request.headers)
            else:
                refused = self._admission.refusal(request.headers, request.cookies)
            return await handler(request) if refused is None else _refusal(*refused)
        except web.HTTPMethodNotAllowed as error:
            allow = ", ".join(sorted(error.allowed_methods))
            return _refusal(405, f"{request.path} takes {allow}, not {error.method}", allow)
        except web.HTTPNotFound:
            return _refusal(404, unknown_path(request.path, self._paths))
        except web.HTTPException as error:
            return _refusal(error.status, error.text or error.reason, error.headers.get("Allow", ""))
        except tuple(STATUS) as error:
            status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
            details = error.details if isinstance(error, ActionRefused) else {}
            return _refusal(status, str(error) or type(error).__name__, details=details)
        except Exception:
            log.exception("bug in the control plane: %s %s", request.method, request.path)
            return _refusal(500, "a bug; see the log")

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that is not cancelled with its request."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._on_finished)
        return await asyncio.shield(task)

    def _on_finished(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a request was refused: %s", error)

    async def _control_request(
        self, request: web.Request, route: Route, fields: Mapping[str, Any] | None
    ) -> ControlRequest:
        """Parse a request, and check its body, unless `fields` is None."""
        if not route.takes_file:
            body = parse_object(await _content(request, route.body_bytes_max))
            if fields is not None:
                check_fields(body, fields, "a rule" if route.body is RuleFields else "the body")
            return ControlRequest(request.match_info, request.query, body)
        content = await _content(request, self._file_bytes_max)
        return ControlRequest(request.match_info, request.query, {}, content, self._file_bytes_max)

    async def _page(self, request: web.Request) -> web.Response:
        return _file(request.match_info.get("name", INDEX))

    async def _docs(self, request: web.Request) -> web.Response:
        return _file(DOCS)

    async def _log_in(self, request: web.Request) -> web.Response:
        """Set a cookie that stands for the token."""
        session = self._admission.log_in(parse_object(await _content(request, LOGIN_BYTES_MAX)).get("token"))
        if session is None:
            return _refusal(401, "wrong token; see --control-token")
        response = web.json_response({})
        is_tls = self._tls is not None
        response.set_cookie(self._admission.cookie, session, httponly=True, samesite="Strict", path="/", secure=is_tls)
        return response

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Send events (SSE) after the last one that the client has seen."""
        seen = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
        if not seen.isdecimal():
            raise ValueError(f"an event's number is expected, not {seen!r}")
        response = await _stream(request)
        events, sent = self._controlled.events, int(seen)
        if sent > events.newest:
            sent = 0  # the client saw events of a cluster that ended; numbers have begun again

        def flush() -> None:
            nonlocal sent
            for event in events.after(sent):
                sent = event.number
                _write_at_once(response, _message(event))

        with events.flushed_by(flush):
            while True:
                await events.wait_after(sent)
                fresh = events.after(sent)[:EVENTS_AT_ONCE]
                sent = fresh[-1].number if fresh else events.newest
                await response.write(b"".join(map(_message, fresh)))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """Send the dashboard's rows (SSE): the whole state, then the changes."""
        response = await _stream(request)
        assert self._feed is not None, "only a running feed can be watched"
        async with contextlib.aclosing(self._feed.follow()) as messages:
            async for kind, body in messages:
                await response.write(f"event: {kind}\ndata: {body}\n\n".encode())
        return response


def _message(event: Event) -> bytes:
    row = json.dumps(event.row(), default=str)
    return f"id: {event.number}\nevent: {event.kind}\ndata: {row}\n\n".encode()


def _write_at_once(response: web.StreamResponse, content: bytes) -> None:
    """Write to the connection's socket, as far as the kernel's buffer has room, within this call."""
    writing = response.write(content)
    with contextlib.suppress(StopIteration, ConnectionError):
        writing.send(None)
    writing.close()


class _PeerErrors(logging.Filter):
    """Logs a client's protocol error in one line; aiohttp would log a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            reason = " ".join(error.message.split())[:NOT_HTTP_CHARS_SHOWN]
            record.msg, record.args, record.exc_info = (
                "malformed HTTP request to the control plane: %s",
                (reason,),
                None,
            )
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return not isinstance(error, ConnectionError)


def _http_log() -> logging.Logger:
    logger = logging.getLogger(f"{__name__}.http")
    if not logger.filters:
        logger.addFilter(_PeerErrors())
    return logger


def _middleware(guard: Callable[[web.Request, Answer], Awaitable[web.StreamResponse]]) -> Any:
    """Make a middleware of a method: aiohttp sets an attribute, which bound methods do not allow."""

    @web.middleware
    async def middleware(request: web.Request, handler: Answer) -> web.StreamResponse:
        return await guard(request, handler)

    return middleware


def _file(name: str) -> web.Response:
    """A file of a page."""
    found = page_file(name)
    if found is None:
        return _refusal(404, "the dashboard has no such file")
    content, kind = found
    headers = {"Content-Type": kind, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if kind.startswith("text/html"):
        headers |= {"Content-Security-Policy": policy(content.decode()), "Referrer-Policy": "no-referrer"}
    return web.Response(body=content, headers=headers)


async def _send_rows(request: web.Request, rows: AsyncGenerator[tuple[str, Any], None]) -> web.StreamResponse:
    """Send the rows of a route as server-sent events."""
    response = await _stream(request)
    async with contextlib.aclosing(rows) as following:
        async for kind, row in following:
            await response.write(f"event: {kind}\ndata: {json.dumps(row)}\n\n".encode())
    return response


async def _stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


def _refusal(status: int, reason: str, allow: str = "", details: Mapping[str, Any] | None = None) -> web.Response:
    headers = {"Allow": allow} if allow else {}
    row = {"error": reason[:REASON_CHARS_MAX], **(details or {})}
    return web.json_response(row, status=status, headers=headers)


async def _content(request: web.Request, bytes_max: int) -> bytes:
    """Read a body of at most `bytes_max`; each part must arrive in time."""
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
            raise web.HTTPRequestTimeout(reason=f"no bytes of the body arrived for {BODY_TIMEOUT_S:g} s") from None
        if not part:
            return bytes(content)
        content += part
        if len(content) > bytes_max:
            raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> web.HTTPException:
    return web.HTTPRequestEntityTooLarge(bytes_max, reason=f"the body is larger than {bytes_max} bytes")
