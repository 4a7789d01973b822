"""Crashes the controller of any running cluster at a named step: an armed candidate is elected first.

The armed node is an additional controller without data, so nothing else is lost with it. Deleting `/controller` makes
the active controller step down; this is repeated until the armed candidate is elected.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.cluster.processes import SMALL_CLUSTER, NodeProcess, free_ports
from anabranch.cluster.zookeeper_sessions import active_controller, resign_active_controller

HOST: Final = "127.0.0.1"
FIRST_ID: Final = 900
TRIES: Final = 50
PAUSE_S: Final = 0.3
SUCCESSION_S: Final = 60.0


async def crash_at(hosts: str, step: str, *, within_s: float, say: Callable[[str], None]) -> int:
    """Start an armed candidate, get it elected, and wait until it crashes.

    Returns 0 if it crashed at the step, 1 if the step was not reached in `within_s` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="anabranch-armed-") as directory:
        node = NodeProcess(
            node_id=FIRST_ID + os.getpid() % 1000,
            roles="controller",
            host=HOST,
            port=free_ports(HOST, 1)[0],
            directory=Path(directory),
            zookeeper=hosts,
            properties=SMALL_CLUSTER,
        )
        await node.start(extra={"crash.at": step})
        try:
            ended = asyncio.ensure_future(node.wait_ended())
            elections = await bring_into_office(node, hosts, ended)
            say(f"node {node.node_id} (pid {node.pid}) is the controller after {elections} elections, armed at {step}")
            done, _ = await asyncio.wait([ended], timeout=within_s)
            if not done:
                ended.cancel()
                say(f"{step} was not reached within {within_s:g} s; disarmed")
                return 1
            died_s = asyncio.get_running_loop().time()
            say(f"node {node.node_id} died at {step}")
            successor = await successor_of(node.node_id, hosts)
            say(f"node {successor} took over after {asyncio.get_running_loop().time() - died_s:.1f} s")
            return 0
        finally:
            await node.kill()


async def successor_of(node_id: int, hosts: str) -> int:
    """Wait until another node is the controller, after the dead one's session has ended."""
    async with asyncio.timeout(SUCCESSION_S):
        while (active := await active_controller(hosts)) in (-1, node_id):  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_S)
        return active


async def bring_into_office(node: NodeProcess, hosts: str, ended: asyncio.Future[int]) -> int:
    """Trigger elections until this candidate has won, or has crashed while winning. Returns their number."""
    await node.wait_ready()
    for count in range(TRIES):
        if ended.done() or await active_controller(hosts) == node.node_id:
            return count
        await resign_active_controller(hosts)
        await asyncio.sleep(PAUSE_S)
    raise TimeoutError(f"node {node.node_id} was not elected in {TRIES} elections")
