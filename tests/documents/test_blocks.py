"""Blocks of README and docs/ run as written, and print what they show.

Method: a page is read from top to bottom in one directory. Its files are written; commands are typed into one shell,
and those that keep running into terminals of their own; scripts are run; tests are run by pytest at the end. Ports are
replaced by free ones. A new `anabranch up` begins when the one before was ended with Ctrl-C.
ANABRANCH_MINUTES=1 runs blocks that take long, ANABRANCH_NETWORK=1 those that install from an index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from anabranch.cluster.local_zookeeper import why_unavailable
from tests.documents.blocks import Block, blocks, output_pattern
from tests.documents.blocks_session import Session
from tests.documents.links import pages
from tests.documents.made import ROOT
from tests.secured.issuer import Issuer, jwks

MADE: Final = {"docs/map.md", "docs/reference.md"}
RUN: Final = ("console", "python", "ini", "toml", "properties", "json")
SHOWN: Final = ("text", "mermaid")
"""Pictures and output that no command prints."""


def is_on_path(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program) is not None


def has_image() -> bool:
    """Whether an engine has the image of the project."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "image", "inspect", "anabranch"], capture_output=True, check=False).returncode == 0


NEEDS: Final[dict[str, Callable[[], bool]]] = {
    "curl": is_on_path("curl"),
    "jq": is_on_path("jq"),
    "tshark": is_on_path("tshark"),
    "Kafka's tools": is_on_path("kafka-configs.sh"),
    "Docker": has_image,
    "Java": lambda: why_unavailable() is None,
    "ANABRANCH_NETWORK": lambda: "ANABRANCH_NETWORK" in os.environ,
    "ANABRANCH_MINUTES": lambda: "ANABRANCH_MINUTES" in os.environ,
    "four machines": lambda: False,  # tests/hosts has them, as network namespaces
    "an OTLP collector": lambda: False,
}
"""What blocks need beyond the package and its development tools, and whether it is here."""


def issuer_files(directory: Path) -> dict[str, str]:
    """Write what only an issuer of tokens could give: its keys, and a token."""
    issuer = Issuer()
    (directory / "keys.json").write_text(jwks(issuer))
    claims = {"iss": "https://issuer.example", "aud": "kafka", "exp": time.time() + 600}
    (directory / "token").write_text(issuer.token(time.time(), **claims))
    return {
        "https://issuer.example/keys": (directory / "keys.json").as_uri(),
        "file:///run/secrets/token": (directory / "token").as_uri(),
    }


PREPARED: Final[Mapping[str, Callable[[Path], dict[str, str]]]] = {"docs/security.md": issuer_files}
BLOCKS: Final = {
    name: found
    for page in pages(ROOT)
    if (name := page.relative_to(ROOT).as_posix()) not in MADE
    and (found := [one for one in blocks(page.read_text()) if one.language not in SHOWN])
}
FIRST: Final = ("README.md", "docs/audit.md", "docs/streams.md")
"""The pages that `make test` runs; `make test-all` runs the others, too."""


def test_every_block_can_be_run() -> None:
    """An unknown language or requirement would skip a block silently."""
    found = [(f"{page}:{one.line}", one) for page, shown in BLOCKS.items() for one in shown]
    assert [place for place, one in found if one.language not in RUN] == []
    assert [(place, need) for place, one in found for need in one.needs if need not in NEEDS] == []
    files = ("ini", "toml", "properties", "json")
    assert [place for place, one in found if one.language in files and one.file is None] == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "page", [one if one in FIRST else pytest.param(one, marks=pytest.mark.costly) for one in BLOCKS]
)
def test_page_runs_from_top_to_bottom(page: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    runnable = []
    typed = "".join(block.code for block in BLOCKS[page] if block.language == "console")
    for block in BLOCKS[page]:
        missing = [need for need in block.needs if not NEEDS[need]()]
        if not missing:
            runnable.append(block)
            continue
        with subtests.test(msg=f"{page}:{block.line}"):
            pytest.skip(f"NO {', '.join(missing).upper()}: the block at {page}:{block.line} was NOT run")
    prepare = PREPARED.get(page)
    directory = tmp_path / "shop"
    directory.mkdir()
    replaced = {} if prepare is None else prepare(directory)
    with Session(directory, replaced) as session:
        for block in runnable:
            if block.file is not None:
                session.write(block)
        for block in runnable:
            if not is_run_later(block, typed):
                with subtests.test(msg=f"{page}:{block.line}"):
                    session.run(block)
        session.stop()
        if tests := [block for block in runnable if block.is_tests and not is_typed(block, typed)]:
            session.test(tests)


def is_typed(block: Block, typed: str) -> bool:
    """Whether a command of the page names the block's file."""
    return block.file is not None and block.file in typed


def is_run_later(block: Block, typed: str) -> bool:
    """Whether a block is no command and no script of its own: a command or pytest runs it."""
    if block.language == "console":
        return False
    return block.language != "python" or block.is_tests or is_typed(block, typed)


PAGE = """\
<!-- needs: curl, jq -->

```console
$ anabranch topics list --a \\
    --b
orders
$ curl x
```

<!-- needs: curl -->

Text between a mark and a block takes the mark away.

```python
# orders.py
async def test_orders():
    ...
```
"""


def test_blocks_have_marks_files_and_commands() -> None:
    console, python = blocks(PAGE)
    assert (console.needs, console.line) == (["curl", "jq"], 3)
    assert [(one.typed, one.shown) for one in console.commands] == [
        ("anabranch topics list --a \\\n    --b", "orders\n"),
        ("curl x", ""),
    ]
    assert (python.needs, python.file, python.is_tests) == ([], "orders.py", True)


@pytest.mark.parametrize(
    ("shown", "printed", "numbers_vary", "matches"),
    [
        ("a 1\n", "a 1\n", False, True),
        ("a 1\n", "a 2\n", False, False),
        ("a 1\n", "a 2\n", True, True),
        ("a 1\n", "b 1\n", True, False),
        ("0.4 ms\n", "17.25 ms\n", False, True),
        ("2026-11-23T23:49:32.668Z  42\n", "2027-01-02T03:04:05.006Z 42\n", False, True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", False, True),
        ("a\n...\nz\n", "a\nb\nc\n", False, False),
        ("may answer X, ...\n", "may answer X, Y, Z\n", False, True),
        ("a\n", "a\nb\n", False, False),
    ],
)
def test_output_pattern_matches_shown_output(shown: str, printed: str, numbers_vary: bool, matches: bool) -> None:
    assert (output_pattern(shown, numbers_vary=numbers_vary).fullmatch(printed) is not None) is matches


@pytest.mark.parametrize(
    ("marks", "shown", "status", "allowed"),
    [
        ("", "", 0, True),
        ("", "", 1, False),
        ("", "Error: no such topic\n", 1, True),
        ("", "Error: no such topic\n", 0, False),
        ("<!-- status: 1 -->\n", "", 1, True),
        ("<!-- status: 1 -->\n", "", 0, False),
        ("<!-- status: 0 or 1 -->\n", "", 0, True),
        ("<!-- status: 0 or 1 -->\n", "", 2, False),
    ],
)
def test_exit_status_must_be_that_of_block_or_mark(marks: str, shown: str, status: int, allowed: bool) -> None:
    (block,) = blocks(f"{marks}```console\n$ anabranch topics list\n{shown}```\n")
    (command,) = block.commands
    assert block.allows(status, command) is allowed
