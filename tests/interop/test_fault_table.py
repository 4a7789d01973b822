"""The tables of docs/faults.md are still true, as far as a short run shows.

Method: cells are run again, and what the application gets is what the page says. `make test` takes librdkafka and this
project's own client, and what takes no patience; with `make interop` the other clients come, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.interop.clients import CACHE, JARS
from tests.interop.fault_table import CLIENTS, FAULTS, ON_RECORDS, PAGE, Run, cell, driver_of

pytestmark = pytest.mark.interop

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
ALWAYS = (
    "NOT_LEADER_OR_FOLLOWER in one partition of three",
    "half an answer, then the end",
    "a whole frame, its message torn",
    "a wrong correlation id",
    "a wrong byte among the records",
)
"""The faults that `make test` has time for."""
SLOW = re.compile(r"after \d+ s|in 200 s|never comes|is gone|stands still")
ROW = re.compile(r"^\| (\*\*)?(.+?)(?:\*\*)? \| (.*?) ?\|$", re.MULTILINE)
TIMES = re.compile(r"\d+(\.\d+)? m?s\b|(calculated )?crc [-0-9a-f]+|\d+ (?=of them twice)")


def documented_cells() -> dict[tuple[str, str, str], str]:
    """(send or read, fault, client) -> the cell of the page."""
    found: dict[tuple[str, str, str], str] = {}
    shown = PAGE.read_text().partition("<!-- clients: begin -->")[2].partition("<!-- clients: end -->")[0]
    for what, rows in zip(("send", "read"), shown.split("|---|---|")[1:], strict=True):
        fault = ""
        for bold, name, content in ROW.findall(rows):
            if bold:
                fault = name
            elif name not in ("producing", "consuming"):
                found[what, fault, name] = content
    return found


def absent(client: str) -> bool:
    if client in ("confluent-kafka", "anabranch"):
        return False
    needs = {"Java": bool(os.environ.get(JARS)), "franz-go": (CACHE / "franz").is_file()}
    return not (WHOLE and needs.get(client, True))


def quick() -> Iterator[object]:
    for (what, fault, client), content in documented_cells().items():
        if not absent(client) and not SLOW.search(content + fault) and (WHOLE or fault in ALWAYS):
            yield pytest.param(what, fault, client, content, id=f"{client}-{what}-{fault}".replace(" ", "-"))


@pytest.mark.parametrize(("what", "fault", "client", "content"), list(quick()))
async def test_client_reacts_as_documented(what: str, fault: str, client: str, content: str) -> None:
    said = {**FAULTS, **ON_RECORDS}[fault]
    run = await cell(driver_of(client), what, said)
    assert outcome(run.story(what)) == outcome(content)


def outcome(content: str) -> str:
    """What the application gets, without what differs from run to run."""
    return TIMES.sub("", content.partition(";")[0].partition(" (tells")[0])


def test_table_has_every_cell() -> None:
    cells = documented_cells()
    assert {client for _, _, client in cells} == set(CLIENTS)
    assert len(cells) == len(CLIENTS) * (2 * len(FAULTS) + len(ON_RECORDS))


def test_rule_without_hits_gives_no_result() -> None:
    assert Run().story("send") == "the rule hit nothing"
