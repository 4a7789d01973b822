"""Ports are as announced, and the number of ports per upstream is bounded."""

from __future__ import annotations

import contextlib
import socket

import pytest

from anabranch.protocol.errors import DecodeError
from anabranch.proxy import listeners
from anabranch.proxy.listeners import ListenerPorts, ProxyListener, reason_of
from anabranch.proxy.settings import ProxySettings
from anabranch.proxy.topic_names import TopicNames


def ports(**more: object) -> tuple[ListenerPorts, list[tuple[int, int]]]:
    moves: list[tuple[int, int]] = []

    def hear(door: ProxyListener, before: int) -> None:
        moves.append((before, door.node_id))

    settings = ProxySettings(upstream=(("127.0.0.1", 1),), **more)  # type: ignore[arg-type]
    return ListenerPorts(settings, TopicNames(), hear), moves


async def test_bootstrap_port_becomes_the_port_of_its_broker() -> None:
    made, moves = ports()
    door = await made.begin_at(("127.0.0.1", 1))
    assert door.node_id == -1 and made.local(5, "127.0.0.1") == -1
    made.add_broker(5, "127.0.0.1", 1)
    made.add_broker(6, "127.0.0.1", 2)
    assert moves == [(-1, -1), (-1, 5), (6, 6)]
    assert made.local(5, "127.0.0.1") == door.port != made.local(6, "127.0.0.1") and made.local(5, "") == -1
    assert [one.node_id for one in made] == [5, 6]
    await made.close()


async def test_brokers_get_consecutive_or_free_ports(caplog: pytest.LogCaptureFixture) -> None:
    while True:
        with contextlib.ExitStack() as stack:
            taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            first = taken.getsockname()[1] - 1
            made, _ = ports(port=first)
            try:
                door = await made.begin_at(("127.0.0.1", 1))
            except OSError:
                continue  # somebody else has it
            assert door.port == first
            made.add_broker(1, "127.0.0.1", 9)
            assert made.local(1, "127.0.0.1") not in (first, first + 1)
            assert f"port {first + 1} is in use" in caplog.text
            await made.close()
            again, _ = ports(port=first + 1)
            with pytest.raises(OSError):
                await again.begin_at(("127.0.0.1", 1))
            return


async def test_proxy_refuses_itself_as_upstream_and_ports_above_65535() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made, _ = ports(port=port)
    with pytest.raises(OSError, match="cannot be its own upstream"):
        await made.begin_at(("localhost", port))
    await made.close()
    last, _ = ports(port=65536)
    last.add_broker(1, "127.0.0.1", 1)
    assert 0 < last.local(1, "127.0.0.1") < 65536
    await last.close()


async def test_number_of_brokers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "BROKERS_MAX", 3)
    made, _ = ports()
    for number in range(3):
        made.add_broker(number, "127.0.0.1", 1000 + number)
    with pytest.raises(DecodeError, match="more than 3 brokers"):
        made.add_broker(3, "127.0.0.1", 1003)
    await made.close()


def test_errors_are_described() -> None:
    assert reason_of(TimeoutError()) == "no connection within 10 s"
    assert reason_of(ConnectionRefusedError(111, "Connection refused")) == "Connection refused"
    assert reason_of(OSError()) == "OSError"
