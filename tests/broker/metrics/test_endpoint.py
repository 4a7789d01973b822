"""The metrics endpoint is a small, robust HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from anabranch.broker.metrics import endpoint as module
from anabranch.broker.metrics.endpoint import HEAD_BYTES_MAX, Endpoint
from anabranch.broker.metrics.family import GAUGE, Family
from anabranch.broker.metrics.node_families import FAMILIES
from anabranch.broker.metrics.readings import Reading
from anabranch.cluster.in_process import Cluster
from tests.broker.metrics.scraping import exchange, get, scrape


async def test_http_requests_are_answered_by_method_and_path() -> None:
    async with Endpoint("127.0.0.1", 0) as endpoint:
        status, headers, body = await get(endpoint.url)
        assert status == "HTTP/1.1 200 OK"
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in headers
        assert f"Content-Length: {len(body)}" in headers
        assert "process_cpu_seconds_total" in body
        status, headers, body = await get(endpoint.url, method="HEAD")
        assert (status, body) == ("HTTP/1.1 200 OK", "")
        assert (await get(endpoint.url + "?name=x"))[0] == "HTTP/1.1 200 OK"
        assert (await get(endpoint.url + "/more"))[0] == "HTTP/1.1 404 Not Found"
        assert (await get(endpoint.url, method="POST"))[0] == "HTTP/1.1 405 Method Not Allowed"
        assert (await exchange(endpoint.url, "\x16\x03\x01\r\n\r\n"))[0] == "HTTP/1.1 400 Bad Request"
    with pytest.raises(ConnectionRefusedError):
        await get(endpoint.url)


async def test_openmetrics_format_is_negotiated() -> None:
    async with Cluster(1) as cluster, Endpoint("127.0.0.1", 0) as endpoint:
        endpoint.show(cluster.nodes[1])
        accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
        _, headers, body = await get(endpoint.url, accept)
        assert "Content-Type: application/openmetrics-text; version=1.0.0" in headers
        names = {family.name for family in text_string_to_metric_families(body)}
        assert {family.full_name.removesuffix("_total") for family in FAMILIES} <= names


async def test_oversized_or_incomplete_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    async with Endpoint("127.0.0.1", 0) as endpoint:
        assert await exchange(endpoint.url, "GET /metrics HTTP/1.1\r\n") == ("", "", "")
        monkeypatch.undo()
        with_much = "GET /metrics HTTP/1.1\r\n" + "X: y\r\n" * HEAD_BYTES_MAX
        with contextlib.suppress(ConnectionResetError):  # it was still talking
            assert (await exchange(endpoint.url, with_much))[0] == ""
        _, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.url.split(":")[2].split("/")[0]))
        writer.close()
        assert (await get(endpoint.url))[0] == "HTTP/1.1 200 OK"


async def test_stopping_does_not_wait_for_a_silent_client() -> None:
    endpoint = Endpoint("127.0.0.1", 0)
    await endpoint.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.url.split(":")[2].split("/")[0]))
    while not endpoint._answering:  # noqa: ASYNC110 the server's side of the connection
        await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await endpoint.stop()
        assert await reader.read() == b""
    writer.close()


async def test_exception_while_rendering_is_logged_and_answered_with_500(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Reading) -> int:
        raise ZeroDivisionError

    async with Cluster(1) as cluster, Endpoint("127.0.0.1", 0) as endpoint:
        endpoint.show(cluster.nodes[1])
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, logger=module.__name__):
            patch.setattr(module, "FAMILIES", (Family("broken", GAUGE, "Raises.", broken),))
            assert (await get(endpoint.url))[0] == "HTTP/1.1 500 Internal Server Error"
        assert "ZeroDivisionError" in caplog.text
        assert (await scrape(endpoint)).of("anabranch_brokers") == {"1": 1}
