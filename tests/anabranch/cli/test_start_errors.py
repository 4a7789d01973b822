"""A cluster that cannot start prints the reason and the remedy."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.cli.start_errors import cannot_start


def refused(*arguments: str) -> str:
    """The one line that `anabranch up` ends with."""
    ended = CliRunner().invoke(cli, ["up", "--brokers", "1", *arguments], prog_name="anabranch")
    assert ended.exit_code == 1, ended.output
    (line,) = ended.output.splitlines()
    assert line.startswith("Error: cannot start: ")
    return line


@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_port_in_use_is_explained(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        arguments = ["--port", "0", option, str(port)] if option != "--port" else ["--port", str(port)]
        line = refused(*arguments)
    assert f"('127.0.0.1', {port})" in line
    assert "another process uses this address: stop it, or write another port" in line


def test_address_of_another_machine_is_explained() -> None:
    """192.0.2.0/24 is reserved for documentation."""
    line = refused("--port", "0", "--host", "192.0.2.1")
    assert "192.0.2.1" in line and "this machine does not have that address" in line and "--advertise" in line


def test_unresolvable_host_is_explained() -> None:
    assert "cannot resolve the host name" in refused("--port", "0", "--host", "no such host")


def test_invalid_directory_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused("--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert str(tmp_path / "file") in line
    assert "a part of that path is a file: name another --data-dir" in line
    line = refused("--port", "0", "--data-dir", "/proc/data")
    assert "/proc/data" in line and "cannot be created: name another --data-dir" in line


@pytest.mark.parametrize(
    ("number", "filename", "advice"),
    [
        (errno.EACCES, "/data", "no permission to write there"),
        (errno.EACCES, None, "ports below 1024 are for root"),
        (errno.EROFS, "/data", "read-only"),
        (errno.ENOSPC, "/data", "the disk is full: free space, or"),
    ],
)
def test_system_errors_get_advice(number: int, filename: str | None, advice: str) -> None:
    error = OSError(number, os.strerror(number), filename) if filename else OSError(number, os.strerror(number))
    message = cannot_start(error)
    assert message.startswith("cannot start: ") and os.strerror(number) in message and advice in message
    assert (filename or "") in message


def test_errors_without_advice_are_shown_unchanged() -> None:
    assert cannot_start(OSError(errno.EIO, "Input/output error", "/data")) == (
        "cannot start: /data: Input/output error"
    )
    assert cannot_start(TimeoutError("no ZooKeeper answered")) == "cannot start: no ZooKeeper answered"


def test_too_many_open_files_advises_to_raise_the_limit() -> None:
    assert "raise `ulimit -n`" in cannot_start(OSError(errno.EMFILE, "Too many open files", "data/broker-1/.lock"))
