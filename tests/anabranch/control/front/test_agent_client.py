"""Requests to an agent over HTTP: responses, refusals, silence, and streams that end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.events import Events
from anabranch.control.front import agent_client
from anabranch.control.front.agent_client import AgentClient, AgentUnreachable, open_http
from anabranch.control.route import WaitTimedOut
from anabranch.control.tls import trusting_context
from tests.anabranch.control.certified import LONG_AGO, Files, serving
from tests.anabranch.control.echo import Controlled
from tests.cases import for_each


@pytest.fixture
async def agent() -> AsyncIterator[AgentClient]:
    async with serving(Controlled(Events())) as url, open_http() as http:
        yield AgentClient(http, url, "secret")


async def test_request_carries_path_query_and_body_and_returns_json_or_a_file(agent: AgentClient) -> None:
    found = await agent.ask("POST", "/v1/echo/a", query={"n": "1"})
    assert found == {"words": {"name": "a"}, "query": {"n": "1"}, "body": {}}
    assert await agent.ask("GET", "/v1/file") == b"\x00\x01"


@pytest.mark.parametrize(
    ("name", "error"),
    [("value", ValueError), ("node", UnknownNode), ("wait", WaitTimedOut), ("action", ActionRefused)],
)
async def test_refusal_is_raised_as_in_the_agent(agent: AgentClient, name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^because$"):
        await agent.ask("GET", f"/v1/refused/{name}")


async def test_wrong_token_is_refused() -> None:
    async with serving(Controlled(Events())) as url, open_http() as http:
        with pytest.raises(ActionRefused, match="token"):
            await AgentClient(http, url, "other").ask("GET", "/v1/events")


async def test_agent_that_is_silent_or_down_is_unreachable(agent: AgentClient) -> None:
    with pytest.raises(AgentUnreachable, match=r"does not answer in 0\.05 s$"):
        await agent.ask("GET", "/v1/never", timeout_s=0.05)
    async with open_http() as http:
        with pytest.raises(AgentUnreachable, match="does not answer"):
            await AgentClient(http, "http://127.0.0.1:1", "").ask("GET", "/v1/events")


@for_each(
    [
        "",
        "x",
        "http://[",
        "http://a..b:1",
        f"http://{'x' * 64}.b:1",
        "http://127.0.0.1:70000",
        "http://a\0b:1",
        "file:///x",
    ]
)
async def test_impossible_url_of_an_agent_is_unreachable(url: str) -> None:
    """ZooKeeper may name any URL."""
    async with open_http() as http:
        client = AgentClient(http, url, "secret")
        with pytest.raises(AgentUnreachable):
            await client.ask("GET", "/v1/agent")
        with pytest.raises(AgentUnreachable):
            await anext(client.follow("/v1/events"))


@for_each([b"", b"{", b"[" * 100_000, b"\xff"])
async def test_agent_that_answers_no_json_is_unreachable(content: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content))
        writer.write(content)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, open_http() as http:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(AgentUnreachable):
            await AgentClient(http, url, "secret").ask("GET", "/v1/agent")


async def test_stream_yields_events_after_a_number_until_the_server_ends() -> None:
    events, found = Events(), list[tuple[str, int]]()
    events.publish("first")
    events.publish("second", text="a: b\nc")

    async def follow(agent: AgentClient) -> None:
        async for kind, row in agent.follow("/v1/events", {"after": "1"}):
            found.append((kind, row["number"]))

    async with open_http() as http:
        async with serving(Controlled(events)) as url:
            following = asyncio.create_task(follow(AgentClient(http, url, "secret")))
            async with asyncio.timeout(10):
                while len(found) < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                events.publish("third")
                while len(found) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        with pytest.raises(AgentUnreachable, match="has ended a stream"):
            await following
    assert found == [("second", 2), ("third", 3)]


async def test_event_that_arrives_in_many_pieces_is_one_and_a_boundless_one_ends_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, found = Events(), []
    events.publish("large", text="x" * 1_000_000)
    events.publish("small")
    events.publish("too large", text="y" * 3_000_000)
    monkeypatch.setattr(agent_client, "EVENT_MAX_BYTES", 2_000_000)
    async with asyncio.timeout(60), open_http() as http, serving(Controlled(events)) as url:
        with pytest.raises(AgentUnreachable, match="an event of more than 2,000,000 bytes"):
            async for kind, row in AgentClient(http, url, "secret").follow("/v1/events", {"after": "0"}):
                found.append((kind, row["number"], len(row.get("text", ""))))
    assert found == [("large", 1, 1_000_000), ("small", 2, 0)]


async def test_agent_with_tls_is_verified_by_the_ca_of_the_front(tmp_path: Path) -> None:
    files = Files(tmp_path, "agent")
    async with (
        serving(Controlled(Events()), files.serving) as url,
        open_http(trusting_context(str(files.ca))) as http,
    ):
        agent = AgentClient(http, url, "secret", tls_only=True)
        assert await agent.ask("GET", "/v1/file") == b"\x00\x01"


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("right", "the server has closed the connection without a response; if it uses TLS, write https://"),
        ("other", "certificate is not accepted: certificate signature failure; name the file of its CA"),
        ("old", "certificate is not accepted: certificate has expired"),
        ("elsewhere", "certificate is not accepted: IP address mismatch"),
        ("plain", "the server uses no TLS; write http://"),
    ],
)
async def test_agent_with_a_wrong_certificate_or_scheme_is_unreachable_in_one_line(
    tmp_path: Path, server: str, reason: str
) -> None:
    right = Files(tmp_path, "right")
    expired = Files(tmp_path, "old", now=LONG_AGO)
    files = {
        "right": right,
        "other": Files(tmp_path, "other"),
        "old": expired,
        "elsewhere": Files(tmp_path, "elsewhere", hosts=("10.1.2.3",)),
    }
    trusted = {"old": expired, "elsewhere": files["elsewhere"]}.get(server, right)
    tls: ssl.SSLContext | None = files[server].serving if server in files else None
    async with serving(Controlled(Events()), tls) as url, open_http(trusting_context(str(trusted.ca))) as http:
        address = url.partition("://")[2]
        scheme = "http" if server == "right" else "https"
        with pytest.raises(AgentUnreachable) as refused:
            await AgentClient(http, f"{scheme}://{address}", "secret").ask("GET", "/v1/file")
    assert reason in str(refused.value) and "\n" not in str(refused.value)


async def test_agent_without_tls_gets_no_request_from_a_front_that_has_a_ca(tmp_path: Path) -> None:
    async with open_http(trusting_context(str(Files(tmp_path, "right").ca))) as http:
        agent = AgentClient(http, "http://127.0.0.1:1", "secret", tls_only=True)
        with pytest.raises(ActionRefused, match="uses no TLS, and this front has a CA file for agents"):
            await agent.ask("GET", "/v1/file")
        with pytest.raises(ActionRefused, match="uses no TLS"):
            async for _ in agent.follow("/v1/events"):
                pass
