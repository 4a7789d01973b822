"""Fault rules for disks: writes that fail because the disk is full, and flushes that fail.

A disk without rules has no hook.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anabranch.broker.storage.files import APPEND, FLUSH
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.os_files import OsFiles
from anabranch.faults.trigger import Trigger

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.faults.active_rule import ActiveRule

REFUSED: Final = {"full": (APPEND, errno.ENOSPC, "No space left on device"), "flush": (FLUSH, errno.EIO, "I/O error")}
"""A rule's `disk` -> the operation that fails, and its error."""


def fail_writes(node: Node, rules: Sequence[ActiveRule]) -> None:
    """Apply these rules to the disks of a broker from now on."""
    for path, files in node.files_by_path.items():
        if isinstance(files, MemoryFiles | OsFiles):
            check = functools.partial(_before_write, tuple(rules), node.settings.node_id, path)
            files.before_write = check if rules else None


def _before_write(rules: Sequence[ActiveRule], node_id: int, path: str, what: str) -> None:
    """Raise OSError instead of a write if a rule hits it."""
    for armed in rules:
        refused, number, reason = REFUSED[armed.rule.disk]
        if what == refused and not armed.spent and armed.hit(Trigger(node_id, "disk", what)):
            raise OSError(number, f"{reason} (rule {armed.rule.name})", path)
