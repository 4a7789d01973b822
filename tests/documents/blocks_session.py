"""Runs the blocks of a page: one directory, one shell, and a terminal for each long-running command."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.documents.blocks import Block, Command
from tests.documents.made import ROOT
from tests.running import PYTEST

PORTS: Final = (*range(9092, 9097), *range(19092, 19097), 9190, 9300, 9464, 2181)
"""The ports that pages name. Each is replaced by a free one, neighbours by neighbours."""
PORT: Final = re.compile(rf"(?<![\w.])({'|'.join(map(str, PORTS))})(?!\w)")
KEEPS_RUNNING: Final = re.compile(
    r"anabranch (up|proxy|node|zookeeper|streams) |--follow\b|\bcurl -N\b|\bpython (?:follow|examples/page_views)\.py "
)
READY: Final = {"streams": re.compile(r'\["running"')}
SERVES: Final = re.compile(r"ready ")
FIRST_PORT: Final = 10_000
PLACES: Final = 352
"""For neighbours, one behind the other. Each worker of a run has every eighth, so no two take the same.

They end below the ports of `anabranch.runtime.sockets.free_ports`.
"""
DEADLINE_S: Final = 300.0
LOOK_S: Final = 0.02
LAST_CHARS: Final = 3000
WORKERS: Final = 8
WITHOUT_NETWORK: Final = {"PIP_NO_INDEX": "1", "TESTCONTAINERS_RYUK_DISABLED": "true"}
"""Ryuk is an image that testcontainers pulls."""
WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_places = itertools.count(os.getpid())


def free_ports() -> dict[str, str]:
    """Find free neighbours for all ports of pages."""
    for place in _places:
        first = FIRST_PORT + (place * WORKERS + WORKER) % PLACES * len(PORTS)
        ports = range(first, first + len(PORTS))
        if all(map(_is_free, ports)):
            return dict(zip(map(str, PORTS), map(str, ports), strict=True))
    raise AssertionError("unreachable: the count has no end")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def has_socket(process_id: int) -> bool:
    """Tell from /proc whether a process has a socket; without /proc, say that it has."""
    descriptors = Path(f"/proc/{process_id}/fd")
    try:
        return any(str(one.readlink()).startswith("socket:") for one in descriptors.iterdir())
    except FileNotFoundError:
        return not Path("/proc/self/fd").exists()


class Terminal:
    """A process whose output is read as it comes."""

    def __init__(self, words: list[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            words,
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.output = ""
        self._ended = False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            while piece := os.read(stream.fileno(), 65536):
                with self._more:
                    self.output += piece.decode(errors="replace")
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def send(self, text: str) -> None:
        """Type a text."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def wait_for(self, pattern: re.Pattern[str], start: int = 0) -> re.Match[str]:
        """Wait until the output from `start` on has the pattern."""
        deadline = time.monotonic() + DEADLINE_S
        with self._more:
            while (found := pattern.search(self.output, start)) is None:
                left = deadline - time.monotonic()
                assert left > 0, (
                    f"{pattern.pattern!r} was not printed in {DEADLINE_S} s:\n{self.output[start:][-LAST_CHARS:]}"
                )
                assert not self._ended, f"ended without {pattern.pattern!r}:\n{self.output[start:][-LAST_CHARS:]}"
                self._more.wait(left)
        return found

    def wait_for_connection(self) -> None:
        """Wait until the process has a socket: an interpreter that is interrupted while it starts ends with 1."""
        deadline = time.monotonic() + DEADLINE_S
        while not has_socket(self.process.pid):
            assert self.process.poll() is None, f"ended before it had connected:\n{self.output[-LAST_CHARS:]}"
            assert time.monotonic() < deadline, f"it has not connected in {DEADLINE_S} s"
            time.sleep(LOOK_S)

    def interrupt(self) -> int:
        """Press Ctrl-C, and return the exit status."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            self.close()

    def close(self) -> None:
        """Kill what still runs, and release the pipes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(10)
        if self.process.stdin is not None:
            self.process.stdin.close()


class Session:
    """One page: its directory, its ports, its shell, and the commands that keep running."""

    def __init__(self, directory: Path, replaced: Mapping[str, str]) -> None:
        self.directory = directory
        self.ports = free_ports()
        self._documented = {real: shown for shown, real in self.ports.items()}
        self._replaced = replaced
        self._servers: list[tuple[str, Terminal]] = []
        (directory / "examples").symlink_to(ROOT / "examples")
        (directory.parent / "anabranch").symlink_to(ROOT)
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            **({} if "ANABRANCH_NETWORK" in os.environ else WITHOUT_NETWORK),
            "ANABRANCH_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.ports['9092']}",
            "ANABRANCH_CONTROL": f"127.0.0.1:{self.ports['9190']}",
        }
        self._shell = Terminal(["bash", "--noprofile", "--norc"], directory, self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _, terminal in self._servers:
            terminal.close()
        self._shell.close()

    def real(self, text: str) -> str:
        """Replace a page's names with local ones."""
        for shown, here in self._replaced.items():
            text = text.replace(shown, here)
        return PORT.sub(lambda found: self.ports[found[1]], text)

    def shown(self, text: str) -> str:
        """Replace ports in output by those that pages name."""
        return re.sub(r"(?<![\w.])\d{5}(?!\w)", lambda found: self._documented.get(found[0], found[0]), text)

    def write(self, block: Block) -> None:
        """Write the file that a block is."""
        assert block.file is not None
        (self.directory / block.file).write_text(self.real(block.code))

    def run(self, block: Block) -> None:
        """Run a block of commands, or a script."""
        if block.language == "python":
            script = block.file or f"block_{block.line}.py"
            (self.directory / script).write_text(self.real(block.code))
            self._run(block, Command(f"python {script}", ""))
            return
        for command in block.commands:
            if KEEPS_RUNNING.search(f"{command.typed} "):
                self._start(block, command)
            else:
                self._run(block, command)

    def _run(self, block: Block, command: Command) -> None:
        start = len(self._shell.output)
        typed = self.real(command.typed)
        if typed.startswith("anabranch tour") and "--control" not in typed:
            typed = f"env -u ANABRANCH_CONTROL {typed}"  # it stands for the default port, which a tour has not
        self._shell.send(f"{{ {typed}\n}} </dev/null; printf '\\0%d\\0' $?\n")
        ended = self._shell.wait_for(re.compile(r"\0(\d+)\0"), start)
        printed = self.shown(self._shell.output[start : ended.start()])
        told = f"$ {command.typed}\n{printed}(exit status {ended[1]})"
        assert block.allows(int(ended[1]), command), told
        if command.shown:
            assert block.output(command).fullmatch(printed), f"{told}\nbut the page shows:\n{command.shown}"

    def _start(self, block: Block, command: Command) -> None:
        typed = self.real(command.typed)
        program = (KEEPS_RUNNING.search(f"{typed} ") or [""])[1]
        if program == "up" and "--port" not in typed:
            self.stop()  # one cluster at a time has the default ports
        if program in ("up", "proxy") and "--port" not in typed and "--listener" not in typed:
            typed += f" --port {self.ports['9092' if program == 'up' else '19092']}"
        terminal = Terminal(["bash", "-c", f"exec {typed}"], self.directory, self._environment)
        self._servers.append((command.typed, terminal))
        if program:
            terminal.wait_for(READY.get(program, SERVES))
        else:
            terminal.wait_for_connection()
        if command.shown:
            documented = Command(command.typed, self.real(command.shown))
            terminal.wait_for(block.output(documented))

    def stop(self) -> None:
        """Press Ctrl-C in the terminals that keep running; the last one started ends first."""
        while self._servers:
            typed, terminal = self._servers.pop()
            running = terminal.process.poll() is None
            status = terminal.interrupt()
            output = f"$ {typed}\n{terminal.output[-LAST_CHARS:]}"
            assert running, f"{output}ended before the page did: {status}"
            assert status in (0, -signal.SIGINT, 128 + signal.SIGINT), f"{output}ended with {status}"

    def test(self, tests: list[Block]) -> None:
        names = [one.file or f"test_{one.line}.py" for one in tests]
        for name, block in zip(names, tests, strict=True):
            (self.directory / name).write_text(self.real(block.code))
        words = [*PYTEST, "-ra", "--strict-markers", *names]
        done = subprocess.run(
            words, cwd=self.directory, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout + done.stderr
