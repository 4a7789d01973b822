"""`python -m anabranch.chaos`: inject faults into a running cluster. Every command prints what it did.

Nodes are found by their ids among this machine's processes. Links can be broken in clusters whose traffic passes a
proxy: `python -m anabranch.chaos up` starts such a cluster, and prints the proxy's control socket (`--at`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.broker.profiles.profile import VERSIONS
from anabranch.chaos import disk, nodes
from anabranch.chaos.audited import AuditCompanion, AuditFailed
from anabranch.chaos.control import SOCKET_NAME
from anabranch.chaos.members import MemberFailed
from anabranch.chaos.nodes import FoundNode, NotFound
from anabranch.cluster.control_socket import OrderRefused, send_order
from anabranch.cluster.link_proxy import ANYBODY
from anabranch.cluster.process_registry import start_node
from anabranch.cluster.processes import is_stopped
from anabranch.cluster.zookeeper_sessions import NoSession
from anabranch.controller.failpoints import STEPS

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint

Command = Callable[[argparse.Namespace], Awaitable[int]]
APIS: Final = {
    "produce": 0,
    "fetch": 1,
    "leader-and-isr": 4,
    "stop-replica": 5,
    "update-metadata": 6,
    "controlled-shutdown": 7,
    "offset-commit": 8,
    "join-group": 11,
    "alter-partition": 56,
}
EPILOG: Final = """\
examples:
  python -m anabranch.chaos up --directory /tmp/c          three brokers, two spare controllers, an ensemble, a proxy
  python -m anabranch.chaos nodes
  python -m anabranch.chaos kill 2                         SIGKILL
  python -m anabranch.chaos start 2                        with its port and data
  python -m anabranch.chaos stop 1 --for 8                 SIGSTOP, and SIGCONT after 8 seconds
  python -m anabranch.chaos expire 1                       end its ZooKeeper session
  python -m anabranch.chaos cut 1 2 --at /tmp/c            reset and refuse connections from node 1 to node 2
  python -m anabranch.chaos drop client 2 --at /tmp/c --for 5
  python -m anabranch.chaos hold 1 '*' --api alter-partition --at /tmp/c
  python -m anabranch.chaos heal --at /tmp/c
  python -m anabranch.chaos crash-controller-at resize:after-plan
  python -m anabranch.chaos fill-disk 2 --leave 4096
  python -m anabranch.chaos run --duration 60 --seed 7     everything at once, with a verdict
  python -m anabranch.chaos run --duration 60 --control 127.0.0.1:9190
                                                           the same, and `anabranch control events --follow` shows it
  python -m anabranch.chaos run --duration 60 --login       the same, and everybody gives a password
  python -m anabranch.chaos run --duration 60 --kafka 4.1 --member "mine=python examples/members/librdkafka.py consumer"
                                                           the same, and a group of yours reads and is judged
  python -m anabranch.chaos run --duration 60 --sharers 3  the same, and three members share a topic (KIP-932)
  python -m anabranch.chaos run --duration 60 --audit out/audited   the same, audited by Spark, twice; with a report
"""


def say(line: str) -> None:
    """Print one line about an action."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def found(options: argparse.Namespace) -> FoundNode:
    """Find the node that the options name. Raises NotFound."""
    return nodes.find_node(options.node, cluster=options.cluster)


async def list_nodes(options: argparse.Namespace) -> int:
    """List the nodes that run on this machine."""
    fitting = [node for node in nodes.running_nodes() if node.belongs_to(options.cluster)]
    if options.cluster and not fitting:
        raise NotFound(f"no node runs in {options.cluster}")
    for node in fitting:
        state = "stopped" if is_stopped(node.pid) else "running"
        where = node.directory or "started manually"
        say(f"node {node.node_id}: pid {node.pid}, {state}, {where}, --zookeeper {node.zookeeper}")
    return 0


async def kill(options: argparse.Namespace) -> int:
    """Kill a node with SIGKILL."""
    node = found(options)
    nodes.send(node.pid, signal.SIGKILL)
    say(f"killed node {node.node_id} (pid {node.pid})")
    return 0


async def start(options: argparse.Namespace) -> int:
    """Request a restart of a node from its launcher."""
    say(await start_node(options.node, options.cluster))
    return 0


async def stop(options: argparse.Namespace) -> int:
    """Freeze a node with SIGSTOP."""
    node = found(options)
    nodes.send(node.pid, signal.SIGSTOP)
    say(f"stopped node {node.node_id} (pid {node.pid})")
    if options.seconds:
        await asyncio.sleep(options.seconds)
        return await resume(options)
    return 0


async def resume(options: argparse.Namespace) -> int:
    """Resume a frozen node with SIGCONT."""
    node = found(options)
    nodes.send(node.pid, signal.SIGCONT)
    say(f"resumed node {node.node_id} (pid {node.pid})")
    return 0


async def expire(options: argparse.Namespace) -> int:
    """End the ZooKeeper session of a node."""
    from anabranch.cluster import zookeeper_sessions

    node = found(options)
    victim = await zookeeper_sessions.session_of(node.zookeeper, node.node_id)
    started_s = time.perf_counter()
    await zookeeper_sessions.expire(node.zookeeper, victim)
    took_ms = (time.perf_counter() - started_s) * 1000
    say(f"ended session {victim:#x} of node {node.node_id} (pid {node.pid}) in {took_ms:.0f} ms")
    return 0


async def break_link(options: argparse.Namespace) -> int:
    """Cut, drop, delay or hold a link."""
    details: dict[str, Any] = {"kind": options.command, "source": options.source, "target": options.target}
    if options.command == "delay":
        details["delay_s"] = options.by
    if options.command == "hold":
        details["api_key"] = APIS[options.api]
    if options.direction != "both":
        details["direction"] = options.direction
    fault = await send_order(options.at, "begin", **details)
    say(f"began: {fault['what']}")
    if options.seconds:
        await asyncio.sleep(options.seconds)
        ended = await send_order(options.at, "end", fault=fault["fault"])
        say(f"ended: {ended['what']}, met {ended['hits']} times")
    return 0


async def heal(options: argparse.Namespace) -> int:
    """End all link faults."""
    say(f"ended {(await send_order(options.at, 'heal'))['count']} link faults")
    return 0


async def reset(options: argparse.Namespace) -> int:
    """Reset the connections of a link once."""
    answer = await send_order(options.at, "reset", source=options.source, target=options.target)
    say(f"reset {answer['count']} connections {options.source} -> {options.target}")
    return 0


async def links(options: argparse.Namespace) -> int:
    """List the links that pass the proxy, and the faults on them."""
    answer = await send_order(options.at, "links")
    for source, target, count in answer["links"]:
        say(f"{source} -> {target}: {count} connections")
    for line in answer["faults"]:
        say(f"fault: {line}")
    return 0


async def fill_disk(options: argparse.Namespace) -> int:
    """Fill a node's disk."""
    node = found(options)
    if options.file_limit is not None:
        disk.limit_files(node.pid, options.file_limit if options.file_limit >= 0 else None)
        what = f"files of at most {options.file_limit:,} bytes" if options.file_limit >= 0 else "files of any size"
        say(f"node {node.node_id} (pid {node.pid}) may write {what}")
        return 0
    if options.release:
        say(f"removed a ballast of {disk.release(node.inside):,} bytes from {node.data_dir}")
        return 0
    size = disk.fill(node.inside, leave_bytes=options.leave)
    say(f"wrote a ballast of {size:,} bytes to {node.data_dir}; {disk.free_bytes(node.inside):,} bytes are left")
    if options.seconds:
        await asyncio.sleep(options.seconds)
        say(f"removed a ballast of {disk.release(node.inside):,} bytes")
    return 0


async def crash_controller_at(options: argparse.Namespace) -> int:
    """Elect a controller that crashes at a step."""
    from anabranch.chaos.crash import crash_at

    fitting = [node for node in nodes.running_nodes() if node.belongs_to(options.cluster)]
    clusters = {node.directory or node.zookeeper for node in fitting}
    if len(clusters) != 1:
        raise NotFound(
            f"name one of the running clusters with --cluster: {', '.join(sorted(clusters)) or 'there is none'}"
        )
    return await crash_at(fitting[0].zookeeper, options.step, within_s=options.within, say=say)


async def up(options: argparse.Namespace) -> int:
    """Run a cluster in which every link can be cut."""
    from anabranch.chaos.cluster import serve

    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return await serve(
        directory,
        brokers=options.brokers,
        controllers=options.controllers,
        zookeepers=options.zookeepers,
        say=say,
        endpoint=endpoint_of(options),
    )


def endpoint_of(options: argparse.Namespace) -> ControlEndpoint | None:
    """Create the endpoint of --control, if it is given. Raises NotFound for an address that is not of loopback."""
    from anabranch.control.endpoint import make_control_endpoint

    try:
        return make_control_endpoint(options.control, None)
    except click.UsageError as error:
        raise NotFound(error.message) from None


async def run(options: argparse.Namespace) -> int:
    """Run `anabranch.chaos.run`, and print its verdict."""
    from anabranch.chaos.run import Plan, chaos, report

    if options.login and options.audit is not None:
        raise NotFound("--login excludes --audit: write a delivery log, and audit it with --command-config")
    seed = options.seed if options.seed is not None else int(time.time_ns() // 1_000_000_000)  # drawn once, and printed
    say(f"chaos for {options.duration:g} s, seed {seed}")
    if options.login and options.member:
        raise NotFound("--login excludes --member: members get no password")
    if options.ungated and not options.member:
        raise NotFound("--ungated needs --member")
    if options.shrink and not options.member:
        raise NotFound("--shrink needs --member; without members, the topic shrinks anyway")
    members = dict(options.member)
    if len(members) < len(options.member):
        raise NotFound("duplicate group: give each --member its own name")
    if options.sharers and options.kafka not in (None, "4.2"):
        raise NotFound("--sharers needs --kafka 4.2, for share groups")
    plan = Plan(
        duration_s=options.duration,
        sharers=options.sharers,
        seed=seed,
        rate=options.rate,
        pace_s=options.pace,
        members=members,
        gated=not options.ungated,
        shrinks=options.shrink,
    )
    async with audit_of(options.audit, "orders") as companion:
        if companion is not None:
            plan = replace(plan, audit=companion.audit_topic)
        verdict = await chaos(
            plan,
            say=say,
            directory=options.directory,
            companion=companion,
            login=options.login,
            kafka=options.kafka,
            endpoint=endpoint_of(options),
        )
    for line in (*report(verdict), *(companion.lines() if companion else ())):
        say(line)
    return 0 if verdict.good and (companion is None or companion.good) else 1


async def long_run(options: argparse.Namespace) -> int:
    """Run a marathon, and print its verdict."""
    from anabranch.chaos.marathon import MarathonPlan, marathon, report

    course = MarathonPlan(records=options.records, resizes=options.resizes, seed=options.seed, faults=options.faults)
    async with audit_of(options.audit, "marathon") as companion:
        if companion is not None:
            course = replace(course, audit=companion.audit_topic)
        outcome = await marathon(course, say=say, companion=companion)
    for line in (*report(outcome), *(companion.lines() if companion else ())):
        say(line)
    return 0 if outcome.good and (companion is None or companion.good) else 1


@contextlib.asynccontextmanager
async def audit_of(directory: Path | None, topic: str) -> AsyncIterator[AuditCompanion | None]:
    """Create the audit of a run, if a directory for it is given; else None."""
    if directory is None:
        yield None
        return
    companion = AuditCompanion(directory, say, topic)
    try:
        yield companion
    finally:
        await companion.stop()


LINK_COMMANDS: Final = {
    "cut": "reset a link's connections and refuse new ones",
    "drop": "stop all traffic; it arrives after the end of the fault",
    "delay": "delay all traffic",
    "hold": "delay requests of one API",
}


class Commands:
    """The parser of the command line."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser(
            prog="python -m anabranch.chaos",
            description=__doc__,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._commands = self.parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        self._add_nodes()
        self._add_links()
        self._add_clusters()

    def _add(self, name: str, function: Command, help_text: str) -> argparse.ArgumentParser:
        one = self._commands.add_parser(name, help=help_text, description=help_text)
        one.set_defaults(function=function)
        return one

    def _of_node(self, name: str, function: Command, help_text: str) -> argparse.ArgumentParser:
        one = self._add(name, function, help_text)
        one.add_argument("node", type=int, help="its id")
        one.add_argument("--cluster", default="", help="its directory or ensemble, if several clusters run here")
        return one

    def _add_nodes(self) -> None:
        one = self._add("nodes", list_nodes, "list your node processes on this machine")
        one.add_argument("--cluster", default="", help="only nodes of this cluster: its directory or ensemble")
        self._of_node("kill", kill, "SIGKILL a node")
        self._of_node("start", start, "restart a dead node with its port and data")
        add_duration(self._of_node("stop", stop, "SIGSTOP a node"))
        self._of_node("resume", resume, "SIGCONT a node")
        self._of_node("expire", expire, "end a node's ZooKeeper session")
        one = add_duration(self._of_node("fill-disk", fill_disk, "fill the disk of a node"))
        one.add_argument("--leave", type=int, default=0, help="bytes to leave free")
        one.add_argument("--release", action="store_true", help="remove the ballast again")
        one.add_argument("--file-limit", type=int, help="limit the size of its files instead; -1 lifts the limit")
        one = self._add("crash-controller-at", crash_controller_at, "crash the active controller at a step")
        one.add_argument("step", choices=sorted(STEPS), metavar="STEP", help=", ".join(STEPS))
        one.add_argument("--cluster", default="", help="its directory or ensemble, if several run here")
        one.add_argument("--within", type=float, default=60.0, help="seconds to wait for the step")

    def _add_links(self) -> None:
        for name, help_text in LINK_COMMANDS.items():
            one = add_duration(proxied(self._add(name, break_link, help_text)))
            one.add_argument("source", help="a node's id, client, or *")
            one.add_argument("target", help="a node's id, zookeeper-1 and so on, or *")
            one.add_argument("--direction", choices=("both", "there", "back"), default="both")
            if name == "delay":
                one.add_argument("--by", type=float, required=True, help="seconds")
            if name == "hold":
                one.add_argument("--api", choices=sorted(APIS), required=True)
        proxied(self._add("heal", heal, "end all link faults"))
        one = proxied(self._add("reset", reset, "reset a link's present connections once"))
        one.add_argument("source", nargs="?", default=ANYBODY)
        one.add_argument("target", nargs="?", default=ANYBODY)
        proxied(self._add("links", links, "list the proxy's connections and faults"))

    def _add_clusters(self) -> None:
        one = self._add("up", up, "start a cluster with a proxy on every connection")
        one.add_argument("--directory", type=Path, required=True, help="for data, logs and the proxy's socket")
        one.add_argument("--brokers", type=int, default=3)
        one.add_argument("--controllers", type=int, default=2, help="number of spare controllers")
        one.add_argument("--zookeepers", type=int, default=3)
        one.add_argument("--control", metavar="HOST:PORT", help="serve the control plane on this address of loopback")
        one = self._add("run", run, "run a cluster under load and faults, and print a verdict")
        one.add_argument("--duration", type=float, default=600.0, help="seconds of faults")
        one.add_argument("--seed", type=int, help="seed of the faults")
        one.add_argument("--rate", type=float, default=25.0, help="records per second and producer")
        one.add_argument("--pace", type=float, default=3.0, help="mean seconds between bursts of faults")
        one.add_argument("--directory", type=Path, help="keep data and logs there")
        one.add_argument("--login", action="store_true", help="use SASL for clients and nodes")
        one.add_argument("--kafka", choices=VERSIONS, help="the version of Kafka that brokers show")
        one.add_argument(
            "--member",
            action="append",
            default=[],
            type=named_command,
            metavar="GROUP=COMMAND",
            help="run two such programs as a group, kill them at times, and check their delivery logs",
        )
        one.add_argument("--control", metavar="HOST:PORT", help="serve the control plane on this address of loopback")
        one.add_argument("--sharers", type=int, default=0, help="members of a share group (KIP-932)")
        one.add_argument("--ungated", action="store_true", help="the control: no gates for these groups")
        one.add_argument("--shrink", action="store_true", help="also shrink the topic under these groups")
        audited(one)
        one = self._add(
            "marathon", long_run, "run millions of records through 100 resizes and kills, and print a verdict"
        )
        one.add_argument("--records", type=int, default=10_000_000)
        one.add_argument("--resizes", type=int, default=100)
        one.add_argument("--seed", type=int, default=0, help="seed of the faults")
        one.add_argument("--faults", type=int, default=150)
        audited(one)


def add_duration(one: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of a fault that ends after a while."""
    one.add_argument("--for", dest="seconds", type=float, default=0.0, help="end the fault after this many seconds")
    return one


def audited(one: argparse.ArgumentParser) -> None:
    """Add the options of a run with a Spark audit."""
    one.add_argument(
        "--audit", type=empty, help="audit the deliveries with Spark, and write a report to this directory"
    )


def named_command(text: str) -> tuple[str, str]:
    """Parse a group's name and the command of its members."""
    name, equals, command = text.partition("=")
    if not equals or not command.strip() or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not GROUP=COMMAND, such as 'mine=python member.py'")
    return name, command


def empty(text: str) -> Path:
    """Parse a directory that is new or empty."""
    path = Path(text)
    if path.exists() and any(path.iterdir()):
        raise argparse.ArgumentTypeError(f"{path} contains other files; name a new or empty directory")
    return path


def proxied(one: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of a command to a proxy."""
    one.add_argument("--at", type=at_proxy, required=True, help="the proxy's socket, or the directory of `up`")
    return one


def at_proxy(text: str) -> Path:
    """Parse the control socket, or its directory."""
    path = Path(text)
    return path / SOCKET_NAME if path.is_dir() else path


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit status: 2, with one line, if it fails."""
    options = Commands().parser.parse_args(arguments)
    try:
        status: int = asyncio.run(options.function(options))
    except (NotFound, NoSession, OrderRefused, disk.TooLarge, AuditFailed, MemberFailed, OSError) as error:
        sys.stderr.write(f"chaos: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
