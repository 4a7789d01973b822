"""Mutated HTTP requests against all that serves HTTP: control planes, agents, Streams instances, the metrics endpoint.

    python -m tests.anabranch.control.hostile_http --cases 20000 --seed 7

Each case follows from the seed and its number. A case takes a route of the OpenAPI document and mutates its path,
query, headers or body, or the bytes of the whole request. After each case: the status is no 5xx, and the process has
used little processor time and still answers. After all: the log has no traceback, and memory has not grown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anabranch import Admin, NewTopic

COMMAND: Final = (sys.executable, "-m", "anabranch.cli.main")
TOKEN: Final = "secret"
ANSWER_TIMEOUT_S: Final = 60
INCOMPLETE_S: Final = 0.25
CPU_S_MAX: Final = 1.5
"""Of one case: a node that is reset or started again needs half of that."""
RSS_GROWTH_BYTES_MAX: Final = 96 << 20
"""What is legitimate here keeps rules, topics and snapshots."""
NUMBERS: Final = (
    "0",
    "1",
    "-1",
    "2",
    "1e400",
    "-1e400",
    "NaN",
    "1e30",
    "2147483648",
    "9" * 400,
    "0.5",
    "1e308",
    "-0.0",
)
TEXTS: Final = (
    *("", "1", "t", "orders", "any", "x" * 300, "\x00", "..", "../../evil", "a/b", "%", "\u0130", "\U0001f600", "²"),
    *("-1", "1e400", "nan", "inf", "9" * 5000, "2147483648", "[", "]", "{", "'", '"', "\n", "\r\nX: y", "*", "true"),
)
JSON_TEXTS: Final = ('"\\ud800"', '"\\u0000"', "null", "true", "[]", "{}", "[[]]", '[{"a": []}]', "[" * 40 + "]" * 40)
HEADERS: Final = (
    *(b"Host: [", b"Host: \xff", b"Host: a:b:c", b"Host: [::1", b"Host: localhost:99999999", b"Origin: http://["),
    *(b"Origin: null", b"Origin: http://localhost", b"Origin: \xff\xfe", b"Authorization: \xff", b"Cookie: \xff=\xff"),
    *(b"Authorization: Bearer", b"Cookie: a=b; $Version=1; ;;=", b"Last-Event-ID: " + b"9" * 5000, b"Last-Event-ID: x"),
    *(b"Accept: text/event-stream", b"Content-Length: -1", b"Content-Length: x", b"Content-Length: 5"),
    *(b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", b"Content-Type: \xff", b"Expect: 100-continue"),
    *(b"Upgrade: websocket", b"X: " + b"y" * 9000, b"Accept-Encoding: \xff", b"If-None-Match: *", b"Range: bytes=0-"),
)
NEVER_VALID: Final = {"/v1/state/forks": "snapshot", "/v1/tour/{story}": "story"}
"""Routes whose valid requests start clusters or stories: a word that is never a right one keeps them from it."""


@dataclass
class Target:
    """A process that serves HTTP, and what it serves."""

    process: subprocess.Popen[str]
    log_path: Path
    port: int
    routes: list[tuple[str, str, dict[str, Any]]]
    """Method, path, operation."""
    token: str = TOKEN

    def cpu_s(self) -> float:
        """Processor time of the process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> int:
        """Resident memory of the process."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def ask(self, request: bytes) -> bytes:
        """Send bytes, and read until the end, or the first part of a stream of events."""
        found = b""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_TIMEOUT_S)
        with sock, contextlib.suppress(ConnectionError):
            sock.sendall(request)
            ended = False
            while True:
                if not ended and not select.select([sock], [], [], INCOMPLETE_S)[0]:
                    sock.shutdown(socket.SHUT_WR)  # the request is not complete, or the connection is kept
                    ended = True
                if not (part := sock.recv(1 << 16)):
                    break
                found += part
                if b"text/event-stream" in found.partition(b"\r\n\r\n")[0]:
                    break
        return found

    def attack(self, request: bytes) -> bytes:
        """Send one case and judge what it did; returns the answer."""
        before_s = self.cpu_s()
        answer = self.ask(request)
        assert self.process.poll() is None, f"the process ended\n{self.log_path.read_text()[-3000:]}"
        for head in re.findall(rb"HTTP/1\.[01] (\d+)", answer[:200]):
            assert int(head) < 500, f"{head.decode()}\n{self.log_path.read_text()[-5000:]}"
        used_s = self.cpu_s() - before_s
        assert used_s < CPU_S_MAX, f"it took {used_s:.2f} s of processor time"
        return answer

    def check(self, rss_bytes: int) -> None:
        """The log has no traceback, and memory has not grown."""
        log = self.log_path.read_text()
        assert "Traceback" not in log and "bug" not in log, log[-6000:]
        grown = self.rss() - rss_bytes
        assert grown < RSS_GROWTH_BYTES_MAX, f"memory grew by {grown >> 20} MiB"


def _json_value(rng: random.Random, kind: str, depth: int = 0) -> str:
    draw = rng.random()
    if draw < 0.25 or depth > 3:
        return rng.choice(JSON_TEXTS)
    if draw < 0.55 or kind in ("integer", "number"):
        return rng.choice(NUMBERS)
    if kind == "array" or draw < 0.62:
        return f"[{', '.join(_json_value(rng, 'object', depth + 1) for _ in range(rng.randint(0, 3)))}]"
    if kind == "object" or draw < 0.70:
        names = (*TEXTS, "key", "value", "headers", "partition", "timestamp", "base64", "retention.ms")
        pairs = (
            f"{json.dumps(rng.choice(names))}: {_json_value(rng, '', depth + 1)}" for _ in range(rng.randint(0, 3))
        )
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(rng.choice(TEXTS))


def _body(rng: random.Random, operation: dict[str, Any], forbidden: str) -> bytes:
    content = operation.get("requestBody", {}).get("content", {})
    draw = rng.random()
    if draw < 0.05:
        return rng.choice([b"[" * 20_000, b'{"a":' * 10_000, rng.randbytes(200), b"\xff\xfe", b"[]", b"x" * 70_000])
    if "application/json" not in content:
        return rng.randbytes(rng.randint(0, 300)) if content or draw < 0.1 else b""
    fields = content["application/json"]["schema"]["properties"]
    pairs = {}
    for name in rng.sample(sorted(fields), min(len(fields), rng.randint(1, 4))):
        schema = fields[name]
        value = json.dumps(rng.choice(schema["enum"])) if "enum" in schema and rng.random() < 0.5 else None
        pairs[name] = value or _json_value(rng, schema.get("type", ""))
    if rng.random() < 0.5 and "topic" in fields:
        pairs["topic"] = json.dumps(f"t{rng.randint(0, 3)}")
    if forbidden in fields:
        pairs[forbidden] = rng.choice(['"nowhere"', "7", "[1]", '{"a": 1}', "true", '"\\ud800"'])
    return f"{{{', '.join(f'{json.dumps(name)}: {one}' for name, one in pairs.items())}}}".encode()


def case(rng: random.Random, target: Target) -> bytes:
    """One mutated request."""
    method, path, operation = rng.choice(target.routes)
    forbidden = NEVER_VALID.get(path, "")
    given = {"node": "1", "topic": "t1", "partition": "0", "number": "1", "rule": "r", "name": "s", "client": "c"}
    given["store"] = rng.choice(("counts", "minutes", "visits")) if "{store}" in path else ""

    def word(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == forbidden:
            return "nowhere" + urllib.parse.quote(rng.choice(TEXTS), safe="")
        usual = rng.random() < 0.6
        return given.get(name, "1") if usual else urllib.parse.quote(rng.choice(TEXTS), safe="") or "1"

    target_path = re.sub(r"{(\w+)}", word, path)
    known = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    rate = rng.choice((0.1, 0.3, 0.5))  # many parameters are refused for the first of them
    words = {name: rng.choice(TEXTS) for name in known if rng.random() < rate}
    if rng.random() < 0.05:
        words[rng.choice(TEXTS)] = rng.choice(TEXTS)
    if "timeout" in known:
        words["timeout"] = rng.choice(["0", "0.01", "nan", "-1", "1e400", "x", "0" * 50])
    query = urllib.parse.urlencode(words, quote_via=urllib.parse.quote)
    if rng.random() < 0.05:
        query += rng.choice(["&%ff=%fe", "&=", "%", "&a=%00", "&" * 50, "#x"])
    headers = [b"Host: localhost", b"Connection: close"]
    if rng.random() < 0.9:
        headers.append(b"Authorization: Bearer " + target.token.encode())
    if rng.random() < 0.3:
        headers.append(rng.choice(HEADERS))
        if headers[-1].startswith(b"Host"):
            headers.pop(0)
    body = _body(rng, operation, forbidden)
    if rng.random() < 0.95:
        headers.append(b"Content-Length: %d" % len(body))
    if rng.random() < 0.1:
        method = rng.choice(["GET", "PUT", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW", "get"])
    line = f"{method} {target_path}{'?' if query else ''}{query} HTTP/1.1".encode()
    request = b"\r\n".join([line, *headers, b"", body])
    return _damaged(rng, request) if rng.random() < 0.1 and not forbidden else request


def _damaged(rng: random.Random, request: bytes) -> bytes:
    """Flip bits, remove and insert bytes, truncate."""
    found = bytearray(request)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + rng.randint(1, 8)]
            case 2:
                found[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                del found[max(at, 1) :]
        if not found:
            return b"\n"
    return bytes(found)


@contextlib.contextmanager
def process(folder: Path, name: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path, dict[str, str]]]:
    """A process of the command; with the words of its ready line."""
    log_path = folder / f"{name}.log"
    level = () if arguments[0] == "zookeeper" else ("--log-level", "warning")
    command = [*COMMAND, *arguments, *level]
    with log_path.open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as one:
        try:
            assert one.stdout is not None
            line = one.stdout.readline()
            assert line.startswith(("ready", "{")), log_path.read_text()
            facts = json.loads(line) if line.startswith("{") else dict(word.split("=", 1) for word in line.split()[1:])
            yield one, log_path, facts
        finally:
            one.terminate()
            one.wait(60)


def _routes(url: str) -> list[tuple[str, str, dict[str, Any]]]:
    request = urllib.request.Request(f"{url}/v1/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
        told = json.load(answer)
    found = [(method.upper(), path, one) for path, row in told["paths"].items() for method, one in row.items()]
    for _, _, operation in found:
        for media in operation.get("requestBody", {}).get("content", {}).values():
            if "$ref" in media["schema"]:
                media["schema"] = told["components"]["schemas"][media["schema"]["$ref"].rpartition("/")[2]]
    login = {
        "requestBody": {"content": {"application/json": {"schema": {"properties": {"token": {"type": "string"}}}}}}
    }
    return [*found, ("POST", "/v1/login", login), ("GET", "/", {}), ("GET", "/dashboard/{file}", {})]


APPLICATION: Final = """
from anabranch import SessionWindows, TimeWindows, Topology

def topology():
    made = Topology()
    views = made.stream("views")
    views.count("counts").to("totals")
    views.windowed_by(TimeWindows(60_000)).count("minutes")
    views.windowed_by(SessionWindows(gap_ms=1000)).count("visits")
    return made
"""
TOKEN_OPTIONS: Final = ("--control", "127.0.0.1:0", "--control-token", TOKEN)
CONTROL: Final = (*TOKEN_OPTIONS, "--control-journal", "50", "--control-frames")


def _target(one: subprocess.Popen[str], log_path: Path, facts: dict[str, str]) -> Target:
    url = facts["control"]
    return Target(one, log_path, int(url.rpartition(":")[2]), _routes(url))


@contextlib.contextmanager
def targets(folder: Path) -> Iterator[dict[str, Target]]:
    """The servers of a cluster in one process, of a proxy in front of it, and of an application that reads from it."""
    up = ("up", "--brokers", "1", "--port", "0", *CONTROL, "--metrics-port", "0", "--control-file-mib", "4")
    with contextlib.ExitStack() as stack:
        cluster, log, facts = stack.enter_context(process(folder, "cluster", *up))
        servers = facts["bootstrap"]
        arguments = ("proxy", "--upstream", servers, "--port", "0", *CONTROL)
        proxy = stack.enter_context(process(folder, "proxy", *arguments))
        metrics = facts["metrics"].removesuffix("/metrics")
        yield {
            "cluster": _target(cluster, log, facts),
            "proxy": _target(*proxy),
            "metrics": Target(cluster, log, int(metrics.rpartition(":")[2]), [("GET", "/metrics", {})]),
        }


async def _create(servers: str, *topics: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=1) for topic in topics])


@contextlib.contextmanager
def application(folder: Path) -> Iterator[Target]:
    """The server of an instance of a Streams application, on a cluster without a control plane."""
    file = folder / "application.py"
    file.write_text(APPLICATION)
    with process(folder, "its-cluster", "up", "--brokers", "1", "--port", "0") as (_, _, facts):
        servers = facts["bootstrap"]
        asyncio.run(_create(servers, "views", "totals"))
        where = ("--state-dir", str(folder / "state"), "--application-id", "app", "--bootstrap-servers", servers)
        with process(folder, "streams", "streams", f"{file}:topology", *where, *TOKEN_OPTIONS) as streams:
            yield _target(*streams)


@contextlib.contextmanager
def nodes(folder: Path) -> Iterator[dict[str, Target]]:
    """The front of a cluster of processes, and the agent of a node that was started alone."""
    up = ("up", "--processes", "--brokers", "1", "--port", "0", *CONTROL, "--control-file-mib", "4")
    with contextlib.ExitStack() as stack:
        front = stack.enter_context(process(folder, "front", *up))
        zookeeper = ("zookeeper", "--built-in", "--listen", "127.0.0.1:0")
        _, _, facts = stack.enter_context(process(folder, "zookeeper", *zookeeper))
        node = ("node", "--id", "1", "--zookeeper", facts["zookeeper"], "--listen", "127.0.0.1:0", *CONTROL)
        agent = stack.enter_context(process(folder, "agent", *node))
        yield {"front": _target(*front), "agent": _target(*agent)}


def run(target: Target, cases: int, seed: int, warm_up: int = 100) -> int:
    """Send so many cases; returns how many a handler answered with 200. AssertionError names the case."""
    done = 0
    rss_bytes = 0
    for number in range(cases):
        if number == min(warm_up, cases - 1):
            rss_bytes = target.rss()
        request = case(random.Random(f"{seed} {number}"), target)
        try:
            answer = target.attack(request)
        except (AssertionError, OSError) as error:
            raise AssertionError(f"seed {seed}, case {number}: {request[:2000]!r}\n{error}") from None
        done += answer.startswith(b"HTTP/1.1 200")
    target.check(rss_bytes)
    return done


def main() -> None:
    """Run as many cases as wanted against each target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        found = stack.enter_context(targets(folder)) | stack.enter_context(nodes(folder))
        found["streams"] = stack.enter_context(application(folder))
        for name, target in found.items():
            done = run(target, arguments.cases, arguments.seed)
            print(f"{name}: {arguments.cases} cases of seed {arguments.seed}, {done} answered with 200")


if __name__ == "__main__":
    main()
