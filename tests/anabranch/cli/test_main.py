"""Help texts and errors of the command line, with suggestions."""

from __future__ import annotations

import gc
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.main import COMMANDS, cli
from anabranch.cli.node import place
from tests.compiled_parts import is_compiled


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments), prog_name="anabranch")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_command_restores_signal_handlers() -> None:
    """Forks of a test process that ran a command must still die of SIGTERM."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    code, text = invoke("audit", "--topic", "flights-audit", "--bootstrap-servers", "127.0.0.1:1")
    assert code == 2, text
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_failed_start_leaves_garbage_collector_enabled() -> None:
    """The start disables it; a process that continues would keep all garbage."""
    assert gc.isenabled()
    code, text = invoke("up", "--host", "0.0.0.0")
    assert (code, gc.isenabled()) == (2, True), text


def test_version_says_whether_hot_modules_are_compiled() -> None:
    compiled = "yes" if is_compiled("anabranch.protocol.codec") else "no"
    assert invoke("--version") == (0, f"anabranch, version {version('anabranch')} (compiled: {compiled})\n")


def test_help_lists_every_command() -> None:
    code, text = invoke("--help")
    assert code == 0
    assert all(name in text for name in COMMANDS)
    assert "anabranch topics alter flights --partitions 8" in text


def every_command(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of each command and of each of its subcommands."""
    if path:
        yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_help_of_every_command_has_examples(path: tuple[str, ...]) -> None:
    code, text = invoke(*path, "--help")
    assert code == 0
    usage, _, examples = text.partition("Examples:")
    assert " ".join(["anabranch", *path]) in examples
    assert "..." not in usage.partition("Commands:")[2], "what a subcommand does is said in one line"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topic"], "no such command 'topic'; did you mean topics?"),
        (["frobnicate"], "no such command 'frobnicate'; there are up, node"),
        (["up", "--brokers", "0"], "0 is not in the range"),
        (["up", "--port", "65535"], "--port 65535 leaves too few ports for 3 brokers; write a port up to 65533"),
        (["up", "--zookeeper", "local"], "--zookeeper needs --processes; otherwise an in-memory ZooKeeper is used"),
        (["up", "--processes", "--zookeeper", "remote"], "write built-in, local, or HOST:PORT of an ensemble"),
        (["up", "--processes", "--config", "zookeeper.auth=sasl:a:b"], "zookeeper.auth needs --zookeeper local"),
        (["zookeeper", "--built-in", "--jaas", __file__], "--jaas needs a real ZooKeeper: leave --built-in out"),
        (["zookeeper", "--built-in", "--listen", "2181"], "write HOST:PORT"),
        (["up", "--config", "num.partitons=3"], "did you mean num.partitions?"),
        (["up", "--config", "num.partitions"], "write NAME=VALUE"),
        (["up", "--processes", "--zookeeper", "a:1", "--config", "num.partitions=x"], "must be a whole number"),
        (["up", "--host", "0.0.0.0"], "clients cannot connect to 0.0.0.0: write --advertise HOST"),
        (["up", "--advertise", "h:65535"], "--advertise: port 65535 leaves too few ports for 3 brokers"),
        (["up", "--advertise", "h:x"], "--advertise: 'h:x' has no port"),
        (["up", "--advertise", "h:1", "--listener", "PLAINTEXT://127.0.0.1:0"], "--advertise HOST:PORT is for one lis"),
        (["up", "--processes", "--zookeeper", "a:1", "--host", "::"], "clients cannot connect to ::"),
        (["up", "--config", "listeners=PLAINTEXT://127.0.0.1:9999"], "write --listener, or --host and --port instead"),
        (["up", "--config", "log.dirs=/tmp/a"], "write --data-dir instead"),
        (["up", "--config", "sasl.enabled.mechanisms=PLAIN"], "no listener uses it"),
        (["up", "--config", "broker.id=1", "--config", "node.id=2"], "the same property"),
        (["node", "--id", "1", "--zookeeper", "a:1", "--config", "broker.id=2"], "write --id instead"),
        (["node", "--id", "1", "--zookeeper", "a:1", "--listen", "0.0.0.0:1"], "write --advertise HOST"),
        (["node", "--id", "1", "--zookeeper", "a:1", "--advertise", "h:x"], "--advertise: 'h:x' has no port"),
        (["node", "--zookeeper", "a:1"], "Missing option '--id'"),
        (
            ["node", "--id", "1", "--zookeeper", "a:1", "--listen", "9092"],
            "--listen: '9092' has no port: write HOST:PORT",
        ),
        (["node", "--id", "1", "--zookeeper", "a:1", "--roles", "leader"], "write broker, controller, or broker,con"),
        (["node", "--id", "1", "--zookeeper", "a:1", "--config", "x=1"], "unknown property 'x'"),
        (["dump", "zz"], "Usage: anabranch dump [OPTIONS] HEX..."),
        (["dump", "zz"], "the frame is not hex"),
        (["dump", "--response", "Metadatta", "1", "00"], "did you mean Metadata, UpdateMetadata?"),
        (["groups", "reset", "g", "t", "--to", "1.5"], "--to must be earliest, latest, an offset, a time"),
        (["groups", "reset", "g", "t", "--to", "erliest"], "not 'erliest'; did you mean earliest?"),
        (["consume", "t", "--from", "lates"], "not 'lates'; did you mean latest?"),
        (["topics", "create"], "Missing argument 'NAME'"),
        (["topics", "alter", "t"], "Missing option '--partitions'"),
        (["topics", "create", "t", "--config", "retention"], "write NAME=VALUE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_have_a_remedy(arguments: list[str], message: str) -> None:
    code, text = invoke(*arguments)
    assert code == 2
    assert message in " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("", 0)),
        ("h", ("h", 0)),
        ("h:7", ("h", 7)),
        ("::1", ("::1", 0)),
        ("[::1]", ("::1", 0)),
        ("[::1]:7", ("::1", 7)),
    ],
)
def test_node_may_advertise_another_host_or_port(text: str, found: tuple[str, int]) -> None:
    assert place(text) == found


HEAVY = ("construct", "rich", "kazoo", "numpy", "pandas", "pyspark", "hypothesis", "mypy")


def test_single_process_cluster_imports_no_heavy_modules() -> None:
    """Imports what `anabranch up` runs, in a fresh interpreter."""
    code = (
        "import sys, anabranch.cli.up, anabranch.cluster.in_process, anabranch.controller.controller\n"
        "import anabranch.clients.connection, anabranch.broker.replication.replica_manager\n"
        "import anabranch.broker.coordinators.groups.group_coordinator\n"
        "from anabranch.broker.dispatch.dispatcher import HANDLERS\n"
        "[row.load() for row in HANDLERS]\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ("journal", "--follow", "--control"),
        ("control", "events", "--follow", "--control"),
        ("consume", "endless", "--bootstrap-servers"),
        ("groups", "describe", "readers", "--watch", "--bootstrap-servers"),
    ],
    ids=lambda words: words[0],
)
def test_interrupted_command_exits_with_130_and_empty_stderr(words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "anabranch.cli.main", *words, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            silent.settimeout(60)
            with silent.accept()[0]:  # it waits for an answer from now on
                process.send_signal(signal.SIGINT)
                written = process.communicate(timeout=60)
    assert (process.returncode, *written) == (130, b"", b"")
