"""A blocking test breaks a cluster in another process, waits, and repairs it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from anabranch.cluster.zookeeper import free_port
from anabranch.control.client import ControlClient, ControlError
from tests.running import running


@pytest.fixture(scope="module")
def control() -> Iterator[ControlClient]:
    with running("up", "--port", "0", "--control", "127.0.0.1:0", "--control-token", "secret") as told:
        yield ControlClient(told["control"], "secret")


def test_another_broker_leads_after_broker_failure(control: ControlClient) -> None:
    made = control.create_topic("orders", 3, configs={"min_insync_replicas": "2"})
    leader = made["partitions"][0]["leader"]
    control.wait_for(topic="orders", isr="1,2,3")
    with control.nodes[leader].killed():
        assert not control.nodes[leader].running
        left = ",".join(str(one) for one in (1, 2, 3) if one != leader)
        control.wait_for(topic="orders", isr=left)
    assert control.nodes[leader].running
    control.wait_for(topic="orders", isr="1,2,3", node=leader)
    newest = control.events()[-1]["number"]
    control.nodes[leader].stop()
    control.nodes[leader].start()
    control.nodes[leader].expire_session()
    kinds = []
    for event in control.follow(newest):
        kinds.append(event["kind"])
        if event["kind"] == "session expired":
            break
    assert [one for one in kinds if one.startswith("node")] == [
        *("node stopping", "node stopped", "node starting", "node started")
    ]
    control.wait_for(node=leader, topic="orders", isr="1,2,3")
    control.nodes[leader].suspend_session()
    control.nodes[leader].resume_session()
    assert {one["topic"] for one in control.state()["topics"]} == {"orders"}


def test_errors_have_status_and_reason(control: ControlClient) -> None:
    with pytest.raises(ControlError, match="after 0 s there is no topic nowhere") as gave_up:
        control.wait_for(topic="nowhere", timeout_s=0)
    assert gave_up.value.status == 408
    with pytest.raises(ControlError, match="node 1 is already running"):
        control.nodes[1].start()
    with pytest.raises(ControlError, match="there is no path /v2/nodes; did you mean /v1/nodes"):
        control.ask("GET", "/v2/nodes")
    with pytest.raises(ConnectionError, match="cannot connect to"):
        ControlClient(f"http://127.0.0.1:{free_port()}").state()
    for url in ("http://a..b:1", "http://127.0.0.1:x", f"{'x' * 64}.b:1"):
        with pytest.raises(ConnectionError, match="is not a URL with HOST:PORT"):
            ControlClient(url).state()


@contextlib.contextmanager
def answering(content: bytes) -> Iterator[str]:
    """A server that answers one request with these bytes, and ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_response_that_breaks_off_is_a_failed_connection() -> None:
    """As when the cluster is killed: a command ended with a traceback."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    with answering(head + b"{") as url, pytest.raises(ConnectionError, match=f"the response of {url} breaks off"):
        ControlClient(url).state()


def test_server_of_another_protocol_is_a_failed_connection() -> None:
    with (
        answering(b"SSH-2.0-OpenSSH_9.6\r\n") as url,
        pytest.raises(ConnectionError, match=r"no HTTP server.*SSH-2\.0"),
    ):
        ControlClient(url).state()


def test_client_accepts_plain_address(control: ControlClient) -> None:
    assert ControlClient(control._url.removeprefix("http://"), "secret").state()["nodes"]


def test_reason_why_something_is_not_possible_on_this_cluster(control: ControlClient) -> None:
    assert control.reason_against("POST /v1/nodes/{node}/kill") == ""
    assert "there is no journal" in control.reason_against("GET /v1/journal")
    with pytest.raises(KeyError):
        control.reason_against("POST /v1/nodes/{node}/explode")
