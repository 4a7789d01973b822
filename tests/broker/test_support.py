"""SUPPORT.md is fresh, and true: a running node says the same of itself, and every difference has its test."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

from anabranch.broker import support
from anabranch.broker.dispatch import HANDLERS
from anabranch.clients.connection import Connection
from anabranch.cluster import Cluster
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.registry import APIS

ROOT = Path(__file__).parents[2]


def test_the_page_is_fresh() -> None:
    assert (ROOT / "SUPPORT.md").read_text() == support.page(), "run `make docs`"


def test_the_page_is_made_of_what_the_package_holds() -> None:
    """It can be made where nothing but the wheel is installed."""
    assert support.COMPARED.parent == Path(support.__file__).parent
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert support.COMPARED.name in declared["anabranch.broker"]


def test_every_key_is_served_in_its_whole_range() -> None:
    assert [row.name for row in HANDLERS if not support.is_whole(row)] == []
    assert {api.name for api in APIS} == {row.name for row in HANDLERS}
    assert "**62 of 62 API keys are served, 62 of them in the whole range" in support.page()


def test_every_handler_says_what_it_does() -> None:
    assert [row.name for row in HANDLERS if not support.headline(row)] == []


async def test_a_node_tells_what_the_page_says() -> None:
    """The page, read as a reader does, against ApiVersions of a broker."""
    listed = {
        int(key): tuple(int(end) for end in (first, last or first))
        for key, first, last in re.findall(r"^\| (\d+) \| \w+ \| (\d+)(?:-(\d+))? \|", support.page(), re.MULTILINE)
    }
    async with Cluster(brokers=1) as cluster, asyncio.timeout(60):
        (node,) = cluster.nodes.values()
        connection = await Connection.open("127.0.0.1", node.port, client_id="test")
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await connection.call(request)
        assert {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys} == listed
        await connection.close()


def test_every_difference_is_shown_by_a_test() -> None:
    for difference in support.DIFFERENCES:
        path, _, function = difference.shown_by.partition("::")
        assert f"def {function}" in (ROOT / path).read_text(), difference.shown_by
