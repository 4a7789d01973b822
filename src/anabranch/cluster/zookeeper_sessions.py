"""Ends a ZooKeeper session from outside, at once: connect with its id and password, and close it.

A server hands a session over to a client with its id and password, and the password follows from the id by ZooKeeper's
own rule (`session_password`). So no cooperation of the target is needed: the `ephemeral_owner` of any of its znodes is
enough. The target notices as at any expiry: its ephemerals are gone, its connection is closed, and reconnecting is
answered with "expired".

This module encodes only the two necessary messages (ConnectRequest and closeSession of ZooKeeper's wire format).
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.connect_string import parse_connect_string
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.server.session_password import password_of
from anabranch.controller.zk.session import NoNode
from anabranch.protocol.host_port import format_host_port

CLOSE_SESSION: Final = -11
TIMEOUT_S: Final = 10.0
TRIES: Final = 5
_connect_request: Final = struct.Struct(">iqiqi16s?")


class NoSession(RuntimeError):
    """There is no such session, or no server handed it over."""


class _SessionReclaimed(Exception):
    """The target reconnected, and owned its session again, before it was closed."""


async def expire(hosts: str, session_id: int) -> None:
    """Take the session over and close it. Raises `NoSession` if no server of `hosts` knows it."""
    problem, reclaimed = "", False
    servers, _ = parse_connect_string(hosts)
    for host, port in servers * TRIES:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if await _take_over_and_close(host, port, session_id) or reclaimed:
                    return
            problem = "it has ended, or has another password"
        except _SessionReclaimed:
            problem, reclaimed = "the node reclaimed it each time", True  # unless only the response was lost
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            problem = f"{format_host_port(host, port)}: {error!r}"
    raise NoSession(f"session {session_id:#x} could not be taken over: {problem}")


async def _take_over_and_close(host: str, port: int, session_id: int) -> bool:
    """Take a session over and close it at once, because its owner is reconnecting.

    Returns False if it does not exist.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        hello = _connect_request.pack(0, 0, 10000, session_id, 16, password_of(session_id), False)
        writer.write(struct.pack(">i", len(hello)) + hello)
        answer = await _read_message(reader)
        _, _, granted = struct.unpack_from(">iiq", answer)
        if granted != session_id:
            return False
        writer.write(struct.pack(">iii", 8, 1, CLOSE_SESSION))
        try:
            await _read_message(reader)
        except (OSError, asyncio.IncompleteReadError):
            raise _SessionReclaimed from None
        return True
    finally:
        writer.close()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def session_of(hosts: str, node_id: int) -> int:
    """Return the session of a node, by its znode as a broker or active controller. Raises NoSession if neither."""
    session = await open_kazoo(hosts)
    try:
        stat = await session.exists(paths.broker(node_id))
        if stat is not None:
            return stat.ephemeral_owner
        if await active_controller(hosts) == node_id:
            owner = await session.exists(paths.CONTROLLER)
            if owner is not None:
                return owner.ephemeral_owner
    finally:
        await session.close()
    raise NoSession(f"node {node_id} holds no ephemeral znode: it is neither a live broker nor the active controller")


async def active_controller(hosts: str) -> int:
    """Return the node that /controller names; -1 if there is none."""
    session = await open_kazoo(hosts)
    try:
        data, _ = await session.get(paths.CONTROLLER)
        return znodes.decode_controller(paths.CONTROLLER, data).broker_id
    except NoNode:
        return -1
    finally:
        await session.close()


async def resign_active_controller(hosts: str) -> None:
    """Delete /controller: the active controller steps down, and all candidates start an election."""
    session = await open_kazoo(hosts)
    try:
        await session.delete(paths.CONTROLLER)
    except NoNode:
        pass
    finally:
        await session.close()
