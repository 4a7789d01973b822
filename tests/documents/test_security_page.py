"""Goal: each set-up on the page of security works as it stands there, and is short.

Method: section by section, its files are written, its commands are given in a shell as they are typed, each `up` stays
until the section is over, and what the page shows of their output is looked for. Ports are free ones, and what only an
issuer could give is made here.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.cluster.processes import free_ports
from tests.documents.made import ROOT
from tests.secured.issuer import Issuer, jwks

PAGE = (ROOT / "docs" / "security.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
LINES_MAX = 10
PORTS = ("9092", "9093")


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(section: str) -> bool:
    """Whether it has a cluster of its own."""
    return any("$ anabranch up" in one and "--processes" not in one for one in blocks("console", SECTIONS[section]))


def test_each_set_up_is_short() -> None:
    long = [one for language in ("console", "properties", "python") for one in blocks(language, PAGE)]
    assert long and not [one for one in long if one.count("\n") > LINES_MAX + 2 * one.startswith("from ")]
    assert sum(map(run, SECTIONS)) >= 5


@pytest.mark.parametrize("code", blocks("python", PAGE))
async def test_code_runs(code: str) -> None:
    compiled = compile(code, "security.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, object] = {}
    made = eval(compiled, names)
    if inspect.isawaitable(made):
        await made


def written(folder: Path, replaced: dict[str, str]) -> None:
    """The files of the whole page, and the one that it only tells of."""
    for block in blocks("properties", PAGE):
        name = re.match(r"# ([\w.]+)\n", block)
        if name is not None:
            (folder / name[1]).write_text(with_(block, replaced))
    admin = (folder / "alice.properties").read_text().replace("SCRAM-SHA-512", "PLAIN").replace("alice", "admin")
    admin = admin.replace("scram.Scram", "plain.Plain").replace("wonder", "of brokers")
    (folder / "admin.properties").write_text(admin)


def with_(text: str, replaced: dict[str, str]) -> str:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


@contextmanager
def standing(command: str, folder: Path, port: str) -> Iterator[None]:
    """An `up` for as long as the section lasts."""
    process = subprocess.Popen(["sh", "-c", f"exec {command}"], cwd=folder, env=environment(folder))
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert process.poll() is None, f"{command} has ended"
            assert time.monotonic() < deadline, f"{command}: nobody listens"
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def answers(port: str) -> bool:
    import socket

    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", int(port))) == 0


def environment(folder: Path) -> dict[str, str]:
    """`anabranch` is on the path, and finds the cluster where the page has it."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}


@pytest.mark.parametrize("section", [one for one in SECTIONS if run(one)])
def test_a_set_up_works(section: str, tmp_path: Path) -> None:
    issuer = Issuer()
    (tmp_path / "keys.json").write_text(jwks(issuer))
    claims = {"iss": "https://issuer.example", "aud": "kafka", "exp": time.time() + 600}
    (tmp_path / "token").write_text(issuer.token(time.time(), **claims))
    ports = dict(zip(PORTS, map(str, free_ports("127.0.0.1", len(PORTS))), strict=True))
    replaced = {
        **ports,
        "https://issuer.example/keys": (tmp_path / "keys.json").as_uri(),
        "file:///run/secrets/token": (tmp_path / "token").as_uri(),
    }
    written(tmp_path, replaced)
    (block,) = blocks("console", SECTIONS[section])
    typed = re.findall(r"^\$ (.+)\n((?:(?!\$ ).+\n)*)", block, re.MULTILINE)
    before = [with_(command, replaced) for command, _ in typed if " up " not in command and "certs" in command]
    for command in before:
        subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment(tmp_path), check=True, capture_output=True)
    (up,) = [with_(command, replaced) for command, _ in typed if " up " in command]
    found = re.search(r"127\.0\.0\.1:(\d+)", up)
    assert found is not None
    with standing(up, tmp_path, found[1]):
        for command, output in typed:
            given = with_(command, replaced)
            if given in (*before, up):
                continue
            if "--bootstrap-servers" not in given:
                given += f" --bootstrap-servers 127.0.0.1:{found[1]}"
            ran = subprocess.run(
                ["sh", "-c", given],
                cwd=tmp_path,
                env=environment(tmp_path),
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, f"{given}\n{ran.stdout}{ran.stderr}"
            assert output in ran.stdout, f"{given}\n{ran.stdout}{ran.stderr}"
