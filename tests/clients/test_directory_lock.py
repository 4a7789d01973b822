"""A directory belongs to one process: a second one gets the owner's name, and a kill leaves no lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.clients.directory_lock import DirectoryInUse, DirectoryLock

HOLD = """
import sys
from anabranch.clients.directory_lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_second_owner_in_same_process_is_refused_until_release(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    for _ in range(2):  # a refusal does not let the next one in
        with pytest.raises(DirectoryInUse, match="another node of this process is using this directory"):
            DirectoryLock(tmp_path)
    lock.release()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_lock_of_another_process_names_it_and_ends_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUse) as refused:
            DirectoryLock(tmp_path)
        text = str(refused.value)
        assert text.startswith(f"Failed to acquire lock on file .lock in {tmp_path}: process {holder.pid} (")
        assert sys.executable in text and "\n" not in text.partition(" -c")[0]
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        DirectoryLock(tmp_path).release()


def test_lock_passed_to_child_ends_with_child(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.descriptor,)) as child:
        lock.hand_over(child.pid)
        with pytest.raises(DirectoryInUse, match=f"process {child.pid} "):
            DirectoryLock(tmp_path)
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        DirectoryLock(tmp_path).release()
