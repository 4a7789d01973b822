"""The limit of open files is raised; reaching it is one log line."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import subprocess
import sys

import pytest

UP = [sys.executable, "-m", "anabranch.cli.main", "up", "--brokers", "1", "--port", "0"]


def started(soft: int, hard: int) -> subprocess.Popen[str]:
    """A broker whose limits are these."""
    shell = f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"'
    words = ["bash", "-c", shell, "bash", *UP]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def place(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    found = re.search(r"bootstrap=(\S+):(\d+)", process.stdout.readline())
    assert found is not None
    return found[1], int(found[2])


def test_open_files_limit_is_raised_to_hard_limit() -> None:
    with started(64, 512) as process:
        try:
            place(process)
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (512, 512)
        finally:
            process.terminate()


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of open files are Linux's")
def test_connections_beyond_limit_wait_and_are_reported_in_one_line() -> None:
    with started(48, 48) as process, contextlib.ExitStack() as lines:
        try:
            address = place(process)
            for _ in range(48):
                lines.enter_context(socket.create_connection(address, 10))
            assert process.stderr is not None
            assert "`ulimit -n` is 48" in process.stderr.readline()
            lines.close()
            with socket.create_connection(address, 10) as late:
                late.sendall(b"\0\0\0\x09\0\x12\0\0\0\0\0\x07\0")  # ApiVersions, whose header ends too early
                late.settimeout(60)
                assert late.recv(1) == b"", "it is served again, which is to say refused"
        finally:
            process.terminate()
        assert [line for line in process.stderr.read().splitlines() if "closing" not in line] == []
        assert process.wait(60) == 0
