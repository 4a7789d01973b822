"""The actions of rules on the node of this process: SIGKILL, SIGTERM and SIGSTOP of the process itself.

The kernel delivers a signal that a process sends to itself before `os.kill` returns, so a node that is killed at a step
executes nothing after it. A stopped process is resumed from outside, by SIGCONT.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.faults.fault_actions import BackgroundActions

if TYPE_CHECKING:
    from anabranch.clients.security import Security

log: Final = logging.getLogger(__name__)

SIGNALS: Final[Mapping[str, signal.Signals]] = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGTERM,
    "freeze": signal.SIGSTOP,
}


class ProcessActions(BackgroundActions):
    """Applies the actions of rules to this process; the front applies those on other nodes."""

    def __init__(
        self,
        node_id: int,
        inter_broker_security: Callable[[], tuple[str, Security | None]],
        before_signal: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_signal` is called before each signal: it sends what is not sent yet, such as the event of the hit."""
        super().__init__(inter_broker_security)
        self._node_id = node_id
        self._before_signal = before_signal

    def check_can_freeze(self) -> None:
        """Accept: a process can be stopped."""

    def apply(self, what: str, node_id: int) -> None:
        """Send this process the signal of an action."""
        number = SIGNALS.get(what)
        if node_id == self._node_id and number is not None:
            log.warning("node %d sends itself %s, because of a rule", node_id, number.name)
            self._before_signal()
            os.kill(os.getpid(), number)

    def undo(self, what: str, node_id: int) -> None:
        """Do nothing: a stopped process cannot resume itself."""
