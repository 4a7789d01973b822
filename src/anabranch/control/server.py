"""Serves the control plane over HTTP, on the loop of the cluster. The one module that knows aiohttp.

Refusals: 400 for what nobody could do, 401 without the token, 404 for what is not there, 408 for a wait that was given
up, 409 for what cannot be done now; each with `{"error": "..."}`. A bug is 500, and a traceback in the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any, Final

from aiohttp import web

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.controlled_cluster import Controllable, ControlledCluster
from anabranch.control.openapi import document
from anabranch.control.pages import AccessControl, page_file, policy
from anabranch.control.route import ControlRequest, Route, WaitTimedOut
from anabranch.control.routes import ROUTES
from anabranch.control.tour.guide import Guide
from anabranch.dashboard.feed import Feed
from anabranch.protocol.errors import KafkaError

log: Final = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 1 << 20
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
        self._controlled = controlled
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self._admission = AccessControl(token, local=ipaddress.ip_address(host).is_loopback, port=port)
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/v1/openapi.json", self._openapi)
        if self._feed is not None:
            app.router.add_get("/", self._page)
            app.router.add_get("/dashboard/{name:.+}", self._page)
        app.router.add_post("/v1/login", self._log_in)
        for route in routes:
            app.router.add_route(route.method, route.path, self._answering(route))
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)

    async def start(self) -> None:
        """Take requests, those first that came while nobody answered."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def stop(self) -> None:
        """Take no more requests, and end those under way."""
        await self._runner.cleanup()
        if self._guide is not None:
            await self._guide.end()
        if self._feed is not None:
            await self._feed.stop()

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.json_response(document(self._routes, version("anabranch")))

    def _answering(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            if (refused := self._admission.refusal(request.headers, request.cookies)) is not None:
                return _refusal(*refused)
            try:
                asked = await _asked(request, route)
                if route.path in self._streams and EVENT_STREAM in request.headers.get("Accept", ""):
                    return await self._streams[route.path](request)
                work = route.handler(self._controlled, asked)
                done = await (work if route.waits else self._controlled.run(work))
                return web.Response(body=done) if isinstance(done, bytes) else web.json_response(done)
            except tuple(STATUS) as error:
                status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
                return _refusal(status, str(error) or type(error).__name__)
            except web.HTTPException:
                raise
            except Exception:
                log.exception("bug in the control plane: %s %s", request.method, request.path)
                return _refusal(500, "a bug; the log tells more")

        return answer

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
        try:
            session = self._admission.log_in((await _body(request)).get("token"))
        except ValueError as error:
            return _refusal(400, str(error))
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


async def _stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


def _refusal(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)


async def _asked(request: web.Request, route: Route) -> ControlRequest:
    if route.takes_file:
        return ControlRequest(request.match_info, request.query, {}, await request.content.read())
    return ControlRequest(request.match_info, request.query, await _body(request))


async def _body(request: web.Request) -> dict[str, Any]:
    if not request.can_read_body:
        return {}
    body = json.loads(await request.read() or b"{}")
    if not isinstance(body, dict):
        raise ValueError("the body is a JSON object")
    return body
