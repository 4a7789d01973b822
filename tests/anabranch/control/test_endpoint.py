"""The address of the control plane, which is imported at the first request."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from anabranch.control.endpoint import Address, make_control_endpoint
from anabranch.protocol.host_port import format_host_port
from tests.anabranch.control.certified import Files

LOADED = """
import asyncio, sys
from anabranch.cluster.in_process import Cluster
from anabranch.control.client import ControlClient
from anabranch.control.endpoint import make_control_endpoint

async def main():
    door = make_control_endpoint("127.0.0.1:0", None)
    async with Cluster(1) as cluster, door.open(cluster):
        await asyncio.sleep(0)
        before = "aiohttp" in sys.modules
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(None, ControlClient(door.url).ask, "GET", "/v1/nodes")
        print(before, "aiohttp" in sys.modules, len(rows))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("text", "host", "port", "local"),
    [
        ("127.0.0.1:9190", "127.0.0.1", 9190, True),
        (":0", "127.0.0.1", 0, True),
        ("localhost:1", "localhost", 1, True),
        ("[::1]:9190", "::1", 9190, True),
        ("0.0.0.0:9190", "0.0.0.0", 9190, False),
        ("box:9190", "box", 9190, False),
    ],
)
def test_address_is_parsed(text: str, host: str, port: int, local: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_local) == (host, port, local)


@pytest.mark.parametrize("text", ["9190", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"])
def test_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="takes HOST:PORT"):
        Address.parse(text)


def test_endpoint_beyond_loopback_requires_a_token() -> None:
    with pytest.raises(click.UsageError, match="needs --control-token"):
        make_control_endpoint("0.0.0.0:0", None)
    with pytest.raises(click.UsageError, match="needs --control"):
        make_control_endpoint(None, "secret")
    assert make_control_endpoint(None, None) is None


def test_certificate_makes_the_url_https_and_a_bad_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--control-certificate needs --control"):
        make_control_endpoint(None, None, certificate="server.pem")
    absent = tmp_path / "absent.pem"
    with pytest.raises(click.UsageError, match=rf"--control-certificate {absent}: .*No such file"):
        make_control_endpoint("127.0.0.1:0", None, certificate=str(absent))
    files = Files(tmp_path, "right")
    with pytest.raises(click.UsageError, match=rf"--control-certificate {files.ca}: no private key"):
        make_control_endpoint("127.0.0.1:0", None, certificate=str(files.ca))
    endpoint = make_control_endpoint("0.0.0.0:0", "secret", certificate=str(files.server))
    assert endpoint is not None
    with contextlib.closing(endpoint._listener) as listener:
        port = listener.getsockname()[1]
        assert (endpoint.url, endpoint.url_for("box")) == (f"https://127.0.0.1:{port}", f"https://box:{port}")


@click.command
@click.option("--control-token", envvar="ANABRANCH_CONTROL_TOKEN")
def without_control(control_token: str | None) -> None:
    """A command without `--control`."""
    assert control_token and make_control_endpoint(None, control_token) is None


def test_token_alone_is_refused_as_option_and_not_in_the_environment() -> None:
    invoke = CliRunner().invoke
    assert invoke(without_control, [], env={"ANABRANCH_CONTROL_TOKEN": "of another command"}).exit_code == 0
    refused = invoke(without_control, ["--control-token", "secret"])
    assert (refused.exit_code, "--control-token needs --control" in refused.output) == (2, True)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(click.UsageError, match=r"pip install 'anabranch\[control\]'"):
        make_control_endpoint("127.0.0.1:0", None)


def test_unused_endpoint_loads_no_modules() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("False True 1\n", "")


def test_first_request_without_free_descriptors_is_served_later() -> None:
    """The control plane is imported at the first request, in an interpreter without free file descriptors."""
    code = (
        "import asyncio, logging, os, resource, socket\n"
        "from urllib.parse import urlsplit\n"
        "from anabranch.cluster.in_process import Cluster\n"
        "from anabranch.control import endpoint\n"
        "logging.basicConfig()\n"
        "endpoint.LOAD_AGAIN_S = 0.05\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "said = asyncio.Event()\n"
        "endpoint.log.addFilter(lambda record: said.set() or True)\n"
        "async def main():\n"
        "    door = endpoint.make_control_endpoint('127.0.0.1:0', None)\n"
        "    async with Cluster(1) as cluster, door.open(cluster):\n"
        "        port, client, taken = urlsplit(door.url).port, socket.socket(), []\n"
        "        client.setblocking(False)\n"
        "        client.connect_ex(('127.0.0.1', port))\n"
        "        try:\n"
        "            while True: taken.append(os.open(os.devnull, os.O_RDONLY))\n"
        "        except OSError: pass\n"
        "        await said.wait()\n"
        "        for one in taken: os.close(one)\n"
        "        loop = asyncio.get_running_loop()\n"
        "        await loop.sock_sendall(client, b'GET /v1/nodes HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "        print((await loop.sock_recv(client, 1000)).split(b'\\r\\n')[0].decode())\n"
        "        client.close()\n"
        "asyncio.run(asyncio.wait_for(main(), 60))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "HTTP/1.1 200 OK"
    assert "cannot be loaded yet, its requests wait: [Errno 24]" in done.stderr


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1")])
def test_url_of_endpoint_on_all_addresses_is_reachable(host: str, shown: str) -> None:
    address = format_host_port(host, 0)
    endpoint = make_control_endpoint(address, "secret")
    assert endpoint is not None
    with contextlib.closing(endpoint._listener) as listener:
        assert endpoint.url == f"http://{shown}:{listener.getsockname()[1]}"


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "box"), ("::", "box"), ("127.0.0.1", "127.0.0.1")])
def test_url_for_other_machines_has_the_given_host_instead_of_a_wildcard(host: str, shown: str) -> None:
    endpoint = make_control_endpoint(format_host_port(host, 0), "secret")
    assert endpoint is not None
    with contextlib.closing(endpoint._listener) as listener:
        assert endpoint.url_for("box") == f"http://{shown}:{listener.getsockname()[1]}"
