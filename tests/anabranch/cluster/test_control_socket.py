"""Commands between processes: executed, refused, malformed, and without a receiver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cluster.control_socket import (
    Answer,
    ControlSocket,
    OrderRefused,
    own_socket_path,
    send_order,
    socket_paths,
    sockets_directory,
)


async def carry_out(asked: Answer) -> Answer:
    if asked["do"] == "refuse":
        raise OrderRefused("not today")
    return {"sum": asked["a"] + asked["b"]}


async def test_orders_are_answered_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with pytest.raises(OrderRefused, match="no process listens at"):
        await send_order(path, "add", a=1, b=2)
    door = ControlSocket(carry_out)
    await door.listen(path)
    assert await send_order(path, "add", a=1, b=2) == {"sum": 3}
    for what, details, says in (
        ("refuse", {}, "^not today$"),
        ("add", {"a": 1}, "'b'"),
        ("add", {"a": 1, "b": ""}, "TypeError"),
    ):
        with pytest.raises(OrderRefused, match=says):
            await send_order(path, what, **details)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"nonsense\n")
    assert b'"error"' in await reader.readline()
    writer.close()
    await writer.wait_closed()
    await door.close()
    assert not path.exists()


def test_sockets_of_ended_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left = sockets_directory() / f"{ended.pid}.door"
    left.touch()
    own_socket_path().touch()
    assert socket_paths() == [own_socket_path()]
    assert not left.exists()


def test_socket_whose_process_id_belongs_to_another_user_now_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`anabranch nodes` ended with a PermissionError from then on."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def of_another_user(pid: int, number: int) -> None:
        raise PermissionError

    left = sockets_directory() / "4711.door"
    left.touch()
    monkeypatch.setattr(os, "kill", of_another_user)
    assert socket_paths() == [] and not left.exists()


def test_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    sockets_directory().rmdir()
    own_door_directory = tmp_path / f"anabranch-{os.getuid()}"
    own_door_directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OrderRefused, match="belongs to another user"):
        sockets_directory()
