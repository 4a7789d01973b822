"""What docs/compared.md says of this project: what it lacks is absent, and what it has can be called."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Final

import click
import pytest

import anabranch
import anabranch.testing
from anabranch.broker.authentication.listener_security import MECHANISMS
from anabranch.broker.config.config_def import Scope, config_def
from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.cli.main import cli
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.stream import Stream, Table
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.windows import TimeWindows
from anabranch.control.routes import ROUTES
from tests.documents.made import ROOT

PAGE: Final = (ROOT / "docs/compared.md").read_text()


def commands() -> set[str]:
    return set(cli.list_commands(click.Context(cli)))


def served(*apis: str) -> list[str]:
    return [row.name for row in HANDLERS if row.name in apis]


def routes(word: str) -> list[str]:
    return [route.path for route in ROUTES if word in route.path]


def effective(prefix: str) -> list[str]:
    """The properties with this prefix that have an effect."""
    keys = {**config_def(Scope.BROKER).keys_by_name(), **config_def(Scope.TOPIC).keys_by_name()}
    return [name for name, key in keys.items() if name.startswith(prefix) and not key.without_effect]


FOUND: Final[dict[str, Callable[[], object]]] = {
    "a KRaft quorum": lambda: served("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot"),
    "tiered storage": lambda: effective("remote.") + effective("local."),
    "Kerberos (GSSAPI)": lambda: "GSSAPI" in MECHANISMS,
    "Connect and MirrorMaker": lambda: [name for name in commands() if re.search("connect|mirror", name)],
    "a schema registry": lambda: routes("subjects") + routes("schemas") + sorted(commands() & {"schemas", "registry"}),
    "versioned stores": lambda: [name for kind in (Topology, Stream, Table) for name in dir(kind) if "version" in name],
    "splits and merges by load": lambda: [name for name in effective("reshard.") if re.search("auto|load", name)],
}
"""What would be found here if the line of the first table were wrong."""

NOT_HELD: Final = (
    "storage for production",
    "an HTTP proxy by which applications read and write",
    "a cluster inside a program in Go, C, Java or .NET",
    "requests answered by a function of the test",
    "small requests for",
)
"""Lines about other languages, purposes and costs; the last is measured by `python -m benchmarks`."""


def table(heading: str) -> Iterator[list[str]]:
    """The rows of the table below a heading."""
    lines = re.findall(r"^\|.*\|$", PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_each_line_of_what_is_lacking_is_held_or_named_as_not_held() -> None:
    lacking = [row[0] for row in table("What this project lacks")]
    unknown = [line for line in lacking if not line.startswith((*FOUND, *NOT_HELD))]
    assert unknown == [] and len(lacking) == len(FOUND) + len(NOT_HELD)


@pytest.mark.parametrize("line", FOUND)
def test_what_the_page_says_is_lacking_is_absent(line: str) -> None:
    assert not FOUND[line](), f"docs/compared.md says that this project lacks {line}"


def test_each_command_class_and_target_of_the_page_exists() -> None:
    ours = [row[1] for row in table("Tools for tests")] + [row[1] for row in table("What only this project has")]
    exported = {*anabranch.__all__, *anabranch.testing.__all__, "AnabranchContainer"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [name for cell in ours for name in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 15
    for name in named:
        words = name.split()
        if words[0] == "anabranch":
            assert words[1] in commands(), name
            command = cli.get_command(click.Context(cli), words[1])
            if isinstance(command, click.Group) and len(words) > 2:
                assert words[2] in command.list_commands(click.Context(command)), name
        elif words[0] == "make":
            assert words[1] in targets, name
        else:
            assert name in exported, name


def test_each_name_of_a_streams_application_exists() -> None:
    rows = list(table("Streams applications"))
    known = {*anabranch.__all__, *anabranch.testing.__all__, *(f"anabranch {name}" for name in commands())}
    known |= {field.name for kind in (StreamsConfig, TimeWindows) for field in dataclasses.fields(kind)}
    known |= {name for kind in (Streams, Topology, Stream, Table) for name in dir(kind)}
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[1])}
    assert len(named) > 12 and named <= known, named - known


def test_each_feature_of_streams_applications_has_a_cell_for_each_library() -> None:
    rows = list(table("Streams applications"))
    assert [row[0] for row in rows if len(row) != 5 or not all(row)] == []
    without = {row[0]: row[1] for row in rows if row[1].startswith("none")}
    assert all(":" in cell for cell in without.values()), "a cell without the feature says what to do instead"


def test_each_claim_about_this_project_names_a_command_a_class_or_a_page() -> None:
    only_here = list(table("What only this project has"))
    assert all("`" in how and "](" in pages for _, how, pages in only_here)
