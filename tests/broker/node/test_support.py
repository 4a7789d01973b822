"""SUPPORT.md is fresh and true: a node's versions equal it, and every difference has a test."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.config_def import ConfigError, ConfigKey, Scope, config_def
from anabranch.broker.dispatch.dispatcher import HANDLERS
from anabranch.broker.node import support
from anabranch.broker.node.start_settings import start_settings
from anabranch.broker.profiles.profile import VERSIONS
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.registry import APIS
from tests.compiled_parts import is_compiled

ROOT = Path(__file__).parents[3]
told = pytest.mark.skipif(
    is_compiled("anabranch.broker.handlers.produce"),
    reason="COMPILED: its handlers have no docstrings to make a page of",
)


@told
def test_support_page_is_up_to_date() -> None:
    assert (ROOT / "SUPPORT.md").read_text() == support.page(), "run `make docs`"


def test_support_page_uses_packaged_files_only() -> None:
    """Only the wheel is installed."""
    kept = (support.COMPARED, support.COMPARED_WITH_KAFKA_4)
    assert {path.parent for path in kept} == {Path(support.__file__).parent}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert {path.name for path in kept} <= set(declared["anabranch.broker.node"])


def test_kafka_3_9_is_fully_served() -> None:
    assert "- Kafka 3.9: 62 of 62 API keys, 62 of them in all versions." in support.page()
    assert {api.name for api in APIS} >= {row.name for row in HANDLERS}


@told
def test_every_handler_has_a_headline() -> None:
    assert [row.name for row in HANDLERS if not support.headline(row)] == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_api_versions_equals_the_support_page(version: str) -> None:
    """Compares the page with a broker's ApiVersions."""
    column = 2 + VERSIONS.index(version)
    rows = [line.strip("| ").split(" | ") for line in support.page().splitlines() if re.match(r"\| \d+ \|", line)]
    listed = {}
    for row in rows:
        if row[column] != "-":
            first, _, last = row[column].partition(" ")[0].partition("-")
            listed[int(row[0])] = (int(first), int(last or first))
    telemetry = {"client.telemetry.enable": "true"}
    async with Cluster(brokers=1, kafka=version, properties=telemetry) as cluster, asyncio.timeout(60):
        (node,) = cluster.nodes.values()
        connection = await Connection.open("127.0.0.1", node.port, client_id="test", software_name="a-client")
        request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1")
        answer = await connection.call(request, version=3)
        assert {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys} == listed
        await connection.close()


def test_every_difference_names_an_existing_test() -> None:
    for difference in support.DIFFERENCES:
        path, _, function = difference.shown_by.partition("::")
        assert f"def {function}" in (ROOT / path).read_text(), difference.shown_by


def test_support_page_lists_all_properties_warned_of_or_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Sets each property to a value that is not its default."""
    rows = "\n".join(support.properties_without_effect())
    listed = set(re.findall(r"`([\w.]+)`(?! of a topic)", rows))
    known = config_def(Scope.BROKER).keys_by_name()
    assert listed == {name for name, key in known.items() if key.without_effect}
    for name in listed:
        key, caplog.handler.records[:] = known[name], []
        text = next(text for text in ("7", "true", "false", *key.choices, "1025", "30001") if accepts(key, text))
        try:
            start_settings(BrokerSettings(), {name: text})
        except ConfigError as refused:
            assert key.refused and key.without_effect in str(refused)
        else:
            assert caplog.messages == [f"these properties have no effect here: {name}"]


def accepts(key: ConfigKey, text: str) -> bool:
    try:
        return key.normal(text) != key.default
    except ConfigError:
        return False
