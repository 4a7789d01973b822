"""Each refusal has its HTTP status; events are streamed; every route needs the token."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import re
import socket
import weakref
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from anabranch.control import server as module
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import BODY_BYTES_MAX
from anabranch.control.routes import ROUTES
from anabranch.control.server import ControlServer
from anabranch.runtime.sockets import family_of
from tests.anabranch.control.conftest import controlled

LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
"""Where a server that listens everywhere is asked."""


@asynccontextmanager
async def served(
    token: str = "", brokers: int = 1, host: str = "127.0.0.1", **options: Any
) -> AsyncIterator[tuple[ControlledCluster, aiohttp.ClientSession]]:
    async with controlled(brokers) as on:
        listener = socket.create_server((host, 0), family=family_of(host))
        listener.setblocking(False)
        server = ControlServer(on, listener, token, **options)
        await server.start()
        async with asyncio.timeout(60):
            try:
                root = f"http://{LOOPBACK.get(host, host)}:{listener.getsockname()[1]}"
                jar = aiohttp.CookieJar(unsafe=True)  # else no cookie comes back from an address
                async with aiohttp.ClientSession(root, cookie_jar=jar) as session:
                    yield on, session
            finally:
                await server.stop()


async def status(session: aiohttp.ClientSession, method: str, path: str, **how: Any) -> tuple[int, Any]:
    async with session.request(method, path, **how) as answer:
        return answer.status, await answer.json()


async def test_each_error_has_its_status() -> None:
    async with served() as (_, session):
        for method, path, how, expected in [
            ("GET", "/v1/nodes", {}, 200),
            ("POST", "/v1/topics", {"json": {"topic": "t"}}, 200),
            ("POST", "/v1/topics", {"json": {"topic": "t"}}, 400),
            ("POST", "/v1/topics", {"data": b"{"}, 400),
            ("POST", "/v1/topics", {"data": b"[]"}, 400),
            ("GET", "/v1/wait", {}, 400),
            ("GET", "/v1/topics/nowhere", {}, 404),
            ("POST", "/v1/nodes/7/kill", {}, 404),
            ("GET", "/v1/wait?topic=nowhere&timeout=0", {}, 408),
            ("POST", "/v1/nodes/1/start", {}, 409),
        ]:
            got, body = await status(session, method, path, **how)
            assert got == expected, (path, body)
            assert (expected == 200) != ("error" in body)
        assert (await status(session, "GET", "/v1/openapi.json"))[1]["openapi"].startswith("3.")


async def test_unknown_path_and_method_are_refused_with_suggestion() -> None:
    async with served() as (_, session):
        got, body = await status(session, "GET", "/v1/node")
        assert (got, body) == (404, {"error": "there is no path /v1/node; did you mean /v1/nodes?"})
        async with session.put("/v1/topics") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")
            assert await answer.json() == {"error": "/v1/topics takes GET, POST, not PUT"}


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/v1/topics", {"topic": "t", "partition": 2}, "the body has no 'partition'; did you mean partitions?"),
        ("POST", "/v1/nodes/1/kill", {"now": True}, "the body has no 'now'; it has no fields"),
        ("POST", "/v1/faults", {"api": "Produce", "delay": 5}, "a rule has no 'delay'; did you mean delay_ms?"),
        ("GET", "/v1/events?afterr=3", None, "/v1/events has no 'afterr'; did you mean after?"),
        ("GET", "/v1/nodes?x=1", None, "/v1/nodes has no 'x'; it has no parameters"),
        ("GET", "/v1/wait?topics=t", None, "unknown conditions topics; did you mean topic?"),
    ],
)
async def test_unknown_field_or_parameter_is_refused_and_nothing_done(
    method: str, path: str, body: object, says: str
) -> None:
    async with served() as (_, session):
        assert await status(session, method, path, json=body) == (400, {"error": says})
        assert [one["running"] for one in (await status(session, "GET", "/v1/nodes"))[1]] == [True]
        assert (await status(session, "GET", "/v1/topics"))[1] == (await status(session, "GET", "/v1/faults"))[1] == []


async def test_without_token_nothing_changes() -> None:
    async with served("secret") as (on, session):
        for header in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}):
            got, body = await status(session, "POST", "/v1/nodes/1/kill", headers=header)
            assert (got, "--control-token" in body["error"]) == (401, True)
        assert 1 in on.cluster.nodes
        assert (await status(session, "GET", "/v1/nodes", headers={"Authorization": "Bearer secret"}))[0] == 200


async def test_events_are_streamed_from_a_number() -> None:
    async with served() as (on, session):
        for number in range(3):
            on.events.publish("tick", count=number)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "2"}
        async with session.get("/v1/events", headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            on.events.publish("tock")
            seen = [await answer.content.readuntil(b"\n\n") for _ in range(2)]
        assert [one.split(b"\n")[:2] for one in seen] == [[b"id: 3", b"event: tick"], [b"id: 4", b"event: tock"]]
        assert json.loads(seen[0].split(b"\n")[2].removeprefix(b"data: "))["count"] == 2
        assert (await status(session, "GET", "/v1/events?after=x", headers=headers | {"Last-Event-ID": ""}))[0] == 400


async def test_events_of_a_new_cluster_are_streamed_to_a_client_of_the_one_before() -> None:
    """A client that connects again, as browsers do, got nothing until the numbers had passed its own."""
    async with served() as (on, session):
        on.events.publish("tick")
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "700"}
        async with asyncio.timeout(60), session.get("/v1/events", headers=headers) as answer:
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"id: 1\nevent: tick\n")


async def test_flushed_events_are_sent_within_the_call_and_once() -> None:
    headers = {"Accept": "text/event-stream"}
    async with served() as (on, session), session.get("/v1/events", headers=headers) as answer:
        on.events.publish("first")
        assert await answer.content.readuntil(b"\n\n")
        on.events.publish("flushed")
        transport = answer.connection and answer.connection.transport
        assert transport is not None
        descriptor = transport.get_extra_info("socket").fileno()
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as received:
            with pytest.raises(BlockingIOError):
                received.recv(1, socket.MSG_PEEK)
            on.events.flush()
            assert b"event: flushed" in received.recv(1000, socket.MSG_PEEK)
        on.events.publish("last")
        kinds = [(await answer.content.readuntil(b"\n\n")).split(b"\n")[1] for _ in range(2)]
        assert kinds == [b"event: flushed", b"event: last"]


async def test_exception_is_logged_as_a_bug(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("anabranch.control.state.nodes", lambda cluster: 1 / 0)
    async with served() as (_, session):
        with caplog.at_level(logging.ERROR, module.__name__):
            assert (await status(session, "GET", "/v1/nodes"))[0] == 500
    assert "bug in the control plane: GET /v1/nodes" in caplog.text


HERE = b"Host: localhost\r\n"


async def raw(root: str, request: bytes) -> bytes:
    """Send bytes, and read all that is answered."""
    host, port = root.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def get(path: bytes, *headers: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\n" + b"".join(one + b"\r\n" for one in headers) + b"\r\n"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((b"Host: [",), 403),
        ((b"Host: \xff\xfe",), 403),
        ((b"Host: localhost", b"Origin: http://["), 403),
        ((b"Host: localhost", b"Origin: \xff"), 403),
        ((b"Host: evil.example",), 403),
        ((b"Host: localhost", b"Authorization: Bearer \xff\xfe"), 401),
        ((b"Host: localhost", b"Cookie: anabranch_1=\xff"), 401),
        ((b"Host: localhost", b"Cookie: \xff=\xff; =; ;;"), 401),
    ],
    ids=repr,
)
async def test_header_that_cannot_be_parsed_is_refused(
    headers: tuple[bytes, ...], expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with served("secret") as (_, session):
        for path in (b"/", b"/dashboard/main.js", b"/v1/nodes", b"/v1/openapi.json", b"/nowhere"):
            public = path in (b"/", b"/dashboard/main.js")  # a browser needs them to show the token
            answer = await raw(str(session._base_url).rstrip("/"), get(path, *headers))
            assert int(answer.split(b" ")[1]) == (200 if public and expected == 401 else expected), path
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_cookie_of_this_port_that_is_not_utf8_is_refused() -> None:
    async with served("secret") as (_, session):
        root = str(session._base_url).rstrip("/")
        cookie = b"Cookie: anabranch_" + root.rpartition(":")[2].encode() + b"=\xff"
        assert b" 401 " in (await raw(root, get(b"/v1/nodes", b"Host: localhost", cookie))).split(b"\r\n")[0]


async def test_every_route_requires_the_token() -> None:
    """Also for streams, with any wrong header, and before the body is read."""
    async with served("secret") as (_, session):
        for route in ROUTES:
            where = route.method, re.sub(r"{\w+}", "1", route.path)
            for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secret "[:-2]}):
                accept = {"Accept": "text/event-stream"}
                assert (await status(session, *where, headers=headers | accept, data=b"{"))[0] == 401, where
            foreign = {"Authorization": "Bearer secret", "Origin": "https://evil.example"}
            assert (await status(session, *where, headers=foreign))[0] == 403, where
            rebound = {"Authorization": "Bearer secret", "Host": "evil.example"}
            assert (await status(session, *where, headers=rebound))[0] == 403, where


@pytest.mark.parametrize("host", LOOPBACK)
@pytest.mark.parametrize("name", ["", "cluster.example"], ids=["by address", "by name"])
async def test_control_plane_beyond_loopback_accepts_any_host_name_but_requires_token(host: str, name: str) -> None:
    async with served("secret", host=host) as (_, session):
        own = {"Host": name} if name else {}
        for route in ROUTES:
            path = re.sub(r"{\w+}", "1", route.path)
            assert (await status(session, route.method, path, headers=own, data=b"{"))[0] == 401, path
        for wrong in ("", "secre", "secrets", "Secret"):
            assert (await status(session, "POST", "/v1/login", headers=own, json={"token": wrong}))[0] == 401
            shown = own | {"Authorization": f"Bearer {wrong}"}
            assert (await status(session, "GET", "/v1/nodes", headers=shown))[0] == 401
        foreign = own | {"Authorization": "Bearer secret", "Origin": "https://evil.example"}
        assert (await status(session, "POST", "/v1/nodes/1/kill", headers=foreign))[0] == 403
        assert (await status(session, "GET", "/v1/nodes", headers=own | {"Authorization": "Bearer secret"}))[0] == 200


@pytest.mark.parametrize("host", LOOPBACK)
async def test_cookie_beyond_loopback_is_http_only_and_same_site(host: str) -> None:
    async with served("secret", host=host) as (_, session):
        async with session.post("/v1/login", json={"token": "secret"}) as answer:
            (cookie,) = answer.headers.getall("Set-Cookie")
        flags = {one.strip().lower() for one in cookie.split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/"} <= flags
        assert "secret" not in cookie and not any(one.startswith("domain") for one in flags)
        assert (await status(session, "GET", "/v1/nodes"))[0] == 200, "by the cookie"
        foreign = {"Origin": "http://evil.example"}
        assert (await status(session, "POST", "/v1/nodes/1/kill", headers=foreign))[0] == 403
        session.cookie_jar.clear()
        forged = {"Cookie": cookie.partition("=")[0] + "=forged"}
        assert (await status(session, "GET", "/v1/nodes", headers=forged))[0] == 401


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"token": ' + b"[" * 1900 + b"]" * 1900 + b"}", 400),
        (b"[" * 100_000, 413),
        (b'{"token": "\\ud800"}', 400),
        (b'{"token": 1e400}', 400),
        (b"\xff", 400),
    ],
    ids=lambda one: str(one)[:20],
)
async def test_unusable_login_body_is_refused(body: bytes, expected: int) -> None:
    async with served("secret") as (_, session):
        assert (await status(session, "POST", "/v1/login", data=body))[0] == expected


@pytest.mark.parametrize("value", ["1e400", "NaN", "-Infinity", "9" * 5000, "1" + "0" * 30])
async def test_non_finite_or_huge_number_is_refused(value: str) -> None:
    async with served() as (_, session):
        for path in ("/v1/topics", "/v1/faults", "/v1/state/forks"):
            body = f'{{"topic": "t", "partitions": {value}, "delay_ms": {value}, "snapshot": {value}}}'
            assert (await status(session, "POST", path, data=body.encode()))[0] == 400


async def test_body_over_the_limit_is_refused_while_it_is_received() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)

    async with served() as (_, session):
        assert (await status(session, "POST", "/v1/topics", data=bytes(BODY_BYTES_MAX + 1)))[0] == 413
        root = str(session._base_url).rstrip("/")
        announced = b"POST /v1/topics HTTP/1.1\r\n" + HERE + b"Content-Length: 999999999\r\n\r\n"
        assert b" 413 " in (await raw(root, announced)).split(b"\r\n")[0], "before anything of it came"
        with pytest.raises((AssertionError, aiohttp.ClientError)):  # the answer comes while the body is sent
            assert (await status(session, "POST", "/v1/topics", data=endless()))[0] == 200


async def test_compressed_body_is_refused() -> None:
    async with served() as (_, session):
        headers = {"Content-Encoding": "gzip"}
        assert (await status(session, "POST", "/v1/topics", data=b"x", headers=headers))[0] == 415


async def test_body_that_does_not_arrive_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_TIMEOUT_S", 0.05)
    async with served() as (_, session):
        root = str(session._base_url).rstrip("/")
        request = b"POST /v1/topics HTTP/1.1\r\n" + HERE + b"Content-Length: 10\r\n\r\n{"
        assert b" 408 " in (await raw(root, request)).split(b"\r\n")[0]


@pytest.mark.parametrize("sent", [b"", b"GET /v1/nodes HTTP/1.1\r\nHost: 127"])
async def test_connection_without_a_complete_header_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_TIMEOUT_S", 0.05)
    async with served() as (_, session):
        host, port = session._base_url.host, session._base_url.port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_snapshot_file_over_the_limit_is_refused() -> None:
    """30 MB of zeros, which are sent as 30 KB."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("broker-1/t-0/x", bytes(30 << 20))
    async with served(file_bytes_max=8 << 20) as (_, session):
        path = "/v1/state/snapshots/x/file"
        got, body = await status(session, "PUT", path, data=target.getvalue())
        assert (got, "inflates to more than 8388608 bytes" in body["error"]) == (400, True)
        assert (await status(session, "PUT", path, data=io.BytesIO(bytes((8 << 20) + 1))))[0] == 413


async def test_work_continues_when_its_client_disconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def kill(self: Any, node_id: int) -> dict[str, Any]:
        started.set()
        await go_on.wait()
        done.set()
        return {}

    monkeypatch.setattr("anabranch.control.actions.Actions.kill", kill)
    async with served() as (_, session):
        asking = asyncio.create_task(status(session, "POST", "/v1/nodes/1/kill"))
        await started.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert (await status(session, "GET", "/v1/nodes"))[0] == 200, "the server has seen the connection end"
        go_on.set()
        await done.wait()


async def test_a_stopped_server_does_not_keep_its_cluster() -> None:
    async with served() as (on, session):
        assert (await status(session, "GET", "/v1/nodes"))[0] == 200
        cluster = weakref.ref(on.cluster)
    del on
    gc.collect()
    assert cluster() is None
