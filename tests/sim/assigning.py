"""The scenario of KIP-848 groups: the resize scenario, with readers of the new protocol, or of both.

Coordinators die, freeze and lose their sessions like all brokers; where readers of both protocols are in the group it
changes its kind while they run (KIP-848). Some members are configured with another session timeout than the group's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tests.sim import resizing
from tests.sim.clients import COOPERATIVE, Reader
from tests.sim.resizing import ResizeSchedule

SETTINGS: Final = {
    "kafka_version": "4.1",
    "group_consumer_session_timeout_ms": 2000,
    "group_consumer_heartbeat_interval_ms": 300,
}
EVENTS = ("a group whose broker assigns", "a classic member in a group whose broker assigns")


class AssigningSchedule(ResizeSchedule):
    """One schedule."""

    def _changes(self) -> dict[str, Any]:
        return {**super()._changes(), **SETTINGS}

    def _readers(self) -> list[Reader]:
        rng, sessions = self.cluster.rng("protocols"), self.cluster.rng("sessions")
        self.cluster.history.barriers = False
        mixed = self.aim is None and rng.random() < 0.4
        readers = super()._readers()
        for number, reader in enumerate(readers):
            reader.protocol = "classic" if mixed and number % 2 else "consumer"
            if reader.protocol == "classic" and rng.random() < 0.5:
                reader.strategy = COOPERATIVE
            elif reader.protocol == "consumer" and (self.aim is not None or sessions.random() < 0.5):
                reader.session_timeout_ms = 20_000  # the coordinator's is in force
        return readers


def silent(fired: Counter[str], schedules: int) -> list[str]:
    """What never happened in so many schedules although it should have."""
    return resizing.silent(fired, schedules)
