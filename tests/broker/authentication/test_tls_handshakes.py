"""A client that fails the TLS handshake gets the reason, and its connection is closed.

Method: Python's blocking `ssl`, another implementation of the rules than asyncio's, against a broker on each loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl

import pytest

from anabranch.broker.authentication import listener_security, tls_handshakes
from anabranch.cluster.in_process import Cluster
from tests.broker.serving import until
from tests.loops import LOOPS
from tests.secured.certificates import Files, files

on_each_loop = pytest.mark.asyncio(loop_factories=[*LOOPS])


def refusing(**more: str) -> Cluster:
    """A broker that wants certificates."""
    properties = {**files().properties, "ssl.client.auth": "required", "ssl.endpoint.identification.algorithm": ""}
    properties |= {"inter.broker.listener.name": "PLAINTEXT"} | more
    return Cluster(1, listeners=["SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"], properties=properties)


def address(cluster: Cluster) -> tuple[str, int]:
    """Of the listener with TLS."""
    host, _, port = cluster.bootstrap_servers_of("SSL").rpartition(":")
    return host, int(port)


def tls_alert(where: tuple[str, int], context: ssl.SSLContext) -> str:
    """Return the response to data that follows the handshake immediately."""
    with socket.create_connection(where, timeout=30) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                secured.sendall(bytes(100_000))
                return repr(secured.recv(100))
        except ssl.SSLError as error:
            return str(error.reason)


def trusting(version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client of this version."""
    context = ssl.create_default_context(cafile=str(files().ca))
    context.minimum_version = context.maximum_version = version
    return context


@on_each_loop
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda one: one.name)
async def test_client_without_certificate_receives_the_tls_alert(version: ssl.TLSVersion) -> None:
    async with refusing() as cluster:
        for _ in range(5):
            reason = await asyncio.to_thread(tls_alert, address(cluster), trusting(version))
            assert reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")


@on_each_loop
async def test_client_with_untrusted_certificate_receives_the_tls_alert(tmp_path: pytest.TempPathFactory) -> None:
    context = trusting(ssl.TLSVersion.TLSv1_3)
    context.load_cert_chain(Files(tmp_path).identity("mallory"))  # type: ignore[arg-type]
    async with refusing() as cluster:
        assert await asyncio.to_thread(tls_alert, address(cluster), context) == "TLSV1_ALERT_DECRYPT_ERROR"


@on_each_loop
async def test_connection_lingering_after_the_alert_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshakes, "LINGER_S", 0.1)
    async with refusing() as cluster:
        server = cluster.nodes[1].server
        idle = server.connection_count
        reader, writer = await asyncio.open_connection(*address(cluster), ssl=trusting(ssl.TLSVersion.TLSv1_3))
        raw = writer.transport.get_extra_info("socket")
        assert raw is not None
        await until(lambda: server.connection_count == idle)
        with pytest.raises(OSError):
            await reader.read()
        writer.close()


@on_each_loop
@pytest.mark.parametrize("ended_by", ["the handshake's limit", "connections.max.idle.ms"])
async def test_unfinished_handshake_is_closed_after_the_timeout(ended_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether nothing arrives or single bytes, the handshake's memory is freed."""
    properties = {}
    if ended_by == "connections.max.idle.ms":
        properties[ended_by] = "300"
    else:
        monkeypatch.setattr(listener_security, "HANDSHAKE_S", 0.3)
    async with asyncio.timeout(30), refusing(**properties) as cluster:
        server = cluster.nodes[1].server
        idle = server.connection_count
        ends = [await asyncio.open_connection(*address(cluster)) for _ in range(6)]
        await until(lambda: server.connection_count == idle + len(ends))
        try:
            with contextlib.suppress(ConnectionError):
                for byte in itertools.chain(b"\x16\x03\x01\x02\x00\x01", itertools.repeat(0)):
                    if ends[0][1].is_closing():  # uvloop refuses to write to what has been closed
                        break
                    ends[0][1].write(bytes([byte]))
                    await ends[0][1].drain()
                    await asyncio.sleep(0.05)
            await until(lambda: server.connection_count <= idle)
        finally:
            for _, writer in ends:
                writer.close()


async def test_client_without_tls_is_sent_nothing() -> None:
    async with refusing() as cluster:
        reader, writer = await asyncio.open_connection(*address(cluster))
        writer.write(bytes(20))
        with pytest.raises(ConnectionError):
            assert await reader.read() == b""
            raise ConnectionResetError  # closed the one way or the other
        writer.close()
