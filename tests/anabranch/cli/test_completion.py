"""Completions as a shell asks for them: the environment of click's scripts, and the answer on standard output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.cli import completion
from anabranch.cli.main import main
from tests.anabranch.cli.conftest import Command
from tests.running import running

Complete = Callable[..., list[str]]
NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ANABRANCH_BOOTSTRAP_SERVERS", "ANABRANCH_CONTROL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """The words that a shell would offer for the last of these words."""

    def ask(*words: str, shell: str = "zsh") -> list[str]:
        monkeypatch.setenv("_ANABRANCH_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("anabranch", *words)))
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        with pytest.raises(SystemExit):
            main()
        output = capsys.readouterr()
        assert not output.err
        lines = output.out.splitlines()
        if shell == "zsh":
            return lines[1::3]
        return [line.removeprefix("plain,").partition("\t")[0] for line in lines]

    return ask


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine answers late."""
    monkeypatch.setattr(completion, "PATIENCE_S", 60.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, str]]:
    """The addresses of a cluster and of its control plane."""
    with running("up", "--brokers", "1", "--port", "0", "--control", "127.0.0.1:0") as ready:
        yield ready["bootstrap"], ready["control"]


@pytest.fixture(scope="module")
def named(cluster: tuple[str, str]) -> tuple[str, str]:
    """The cluster with two topics and a group."""
    from click.testing import CliRunner

    from anabranch.cli.main import cli

    at = ("--bootstrap-server", cluster[0])
    for words in (
        ("topics", "create", "flights"),
        ("topics", "create", "fares"),
        ("groups", "reset", "audit", "flights", "--to", "latest", "--create"),
    ):
        result = CliRunner().invoke(cli, [*words, *at])
        assert result.exit_code == 0, result.output
    return cluster


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_topics_of_cluster_named_on_command_line_are_completed(
    complete: Complete, named: tuple[str, str], shell: str
) -> None:
    at = f"--bootstrap-server={named[0]}"
    assert complete("topics", "describe", at, "f", shell=shell) == ["fares", "flights"]
    assert complete("topics", "describe", at, "fares", "f", shell=shell) == ["flights"]
    assert complete("topics", "describe", at, "__", shell=shell) == ["__consumer_offsets"]
    assert complete("groups", "describe", at, "a", shell=shell) == ["audit"]


@pytest.mark.usefixtures("patient")
def test_topics_of_the_current_context_are_completed(
    complete: Complete, named: tuple[str, str], anabranch: Command
) -> None:
    made = anabranch("context", "create", "here", "--bootstrap-server", named[0], "--control", named[1])
    assert made.exit_code == 0, made.output
    assert complete("context", "use", "h") == ["here"]
    assert anabranch("context", "use", "here").exit_code == 0
    assert complete("consume", "fl") == ["flights"]
    assert complete("control", "kill", "") == ["1"]


@pytest.mark.usefixtures("patient")
def test_names_of_the_control_plane_are_completed(
    complete: Complete, named: tuple[str, str], anabranch: Command
) -> None:
    at = ("--control", named[1])
    for words in (
        ("faults", "add", "--api", "Fetch", "--delay-ms", "1", "--name", "slow"),
        ("state", "take", "seeded"),
    ):
        result = anabranch(*words, *at)
        assert result.exit_code == 0, result.output
    assert complete("control", "kill", *at, "") == ["1"]
    assert complete("control", "elect", *at, "fl") == ["flights"]
    assert complete("control", "wait", *at, "topic=fa") == ["topic=fares"]
    assert complete("control", "wait", *at, "group=") == ["group=audit"]
    assert complete("control", "wait", *at, "topic=fares", "partition") == ["partitions=", "partition="]
    assert complete("faults", "remove", *at, "s") == ["slow"]
    assert complete("faults", "add", *at, "--topic", "fl") == ["flights"]
    assert complete("state", "restore", *at, "") == ["seeded"]


def test_apis_errors_properties_and_tours_are_completed_without_a_cluster(complete: Complete) -> None:
    assert complete("faults", "add", "--api", "OffsetCo") == ["OffsetCommit"]
    assert complete("faults", "add", "--error", "NOT_LEADER") == ["NOT_LEADER_OR_FOLLOWER"]
    assert complete("journal", "api=OffsetCo") == ["api=OffsetCommit"]
    assert complete("topics", "config", "t", "--config", "retention.") == ["retention.bytes=", "retention.ms="]
    assert complete("topics", "config", "t", "--config", "cleanup.policy=") == [
        "cleanup.policy=compact",
        "cleanup.policy=delete",
    ]
    assert complete("topics", "config", "t", "--unset", "retention.m") == ["retention.ms"]
    assert complete("up", "--config", "auto.create.topics.enable=t") == ["auto.create.topics.enable=true"]
    assert complete("up", "--config", "crash") == []
    assert complete("tour", "le") == ["leader"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("journal", "api", "=", "OffsetCo"), ["OffsetCommit"]),
        (("journal", "api", "="), None),
        (("topics", "config", "t", "--config", "cleanup.policy", "=", "del"), ["delete"]),
        (("topics", "--bootstrap-server", "127.0.0.1", ":", "1", "conf"), ["config"]),
        (("topics", "config", "t", "--config", "retention.m"), ["retention.ms="]),
    ],
)
def test_bash_completes_part_after_equals_sign_or_colon(
    complete: Complete, words: tuple[str, ...], expected: list[str] | None
) -> None:
    found = complete(*words, shell="bash")
    assert found == expected or (expected is None and {"Produce", "Fetch"} <= set(found))


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "describe", "--bootstrap-server", NOBODY, ""),
        ("groups", "describe", "--bootstrap-server", NOBODY, ""),
        ("topics", "describe", "--bootstrap-server", "no address", ""),
        ("control", "kill", "--control", NOBODY, ""),
    ],
)
def test_unreachable_cluster_completes_nothing(complete: Complete, words: tuple[str, ...]) -> None:
    assert complete(*words) == []


def test_silent_cluster_ends_completion_in_time(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody accepts at a listening socket: without a limit, a client would wait for a minute."""
    import socket

    monkeypatch.setattr(completion, "PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        begun_s = time.monotonic()
        assert complete("topics", "describe", "--bootstrap-server", at, "") == []
        assert complete("control", "kill", "--control", at, "") == []
        assert time.monotonic() - begun_s < 20
