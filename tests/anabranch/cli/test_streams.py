"""`anabranch streams` starts an instance, and names mistakes. Running instances: `test_instances.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.streams import command, load_topology


def invoke(*words: str) -> str:
    result = CliRunner().invoke(command, [*words, "--application-id", "a", "--state-dir", "unused"])
    assert result.exit_code == 2, result.output
    return result.output


def test_topologies_are_found_in_files_and_modules() -> None:
    for where in ("examples/flights.py:topology", "examples.flights:topology"):
        assert load_topology(where).build("app").sources == ("flights",)


def test_invalid_topologies_are_refused(tmp_path: Path) -> None:
    for where, complaint in (
        ("nothing.py:topology", "there is no file nothing.py"),
        ("no.such.module:topology", "No module named 'no'"),
        ("topology", "FILE.py:NAME or MODULE:NAME"),
        ("examples/flights.py:AIR_TIME", "is not a topology"),
        ("examples/flights.py:other", "is not a topology"),
    ):
        with pytest.raises(ValueError, match=complaint):
            load_topology(where)
    good = "examples/flights.py:topology"
    assert "NAME=VALUE" in invoke(good, "--set", "no_such_setting=1")
    assert "NAME=VALUE" in invoke(good, "--set", "commit_interval_ms")
    assert "processing_guarantee" in invoke(good, "--set", "processing_guarantee=maybe")
    assert "is not a topology" in invoke("examples/flights.py:other")


@pytest.mark.costly
def test_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """After half a minute."""
    words = ["--bootstrap-server", "127.0.0.1:1", "--application-id", "a", "--state-dir", str(tmp_path)]
    result = CliRunner().invoke(command, ["examples/counts.py:topology", *words])
    assert result.exit_code == 1 and result.output.endswith("is a cluster running at 127.0.0.1:1?\n")


def test_control_addresses_that_others_cannot_use_are_refused() -> None:
    good = "examples/flights.py:topology"
    assert "--config application_server=HOST:PORT" in invoke(good, "--control", "0.0.0.0:0")
    assert "--control takes HOST:PORT" in invoke(good, "--control", "nowhere")
    assert "needs --control-token" in invoke(good, "--control", "192.0.2.1:0")
    assert "--control-certificate needs --control" in invoke(good, "--control-certificate", "server.pem")
    assert "is not host:port" in invoke(good, "--control", "127.0.0.1:0", "--config", "application_server=nowhere")
