"""The state of a task, and its progress towards the ends of its changelogs. `tasks` says how a state changes."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from anabranch.clients.streams.task_id import TaskId


class State(enum.Enum):
    """The state of a task."""

    CATCHING_UP = "catching up"
    RUNNING = "running"
    STANDBY = "standby"


@dataclass(slots=True)
class Progress:
    """The progress of a task's stores towards the ends of their changelogs."""

    task: TaskId
    state: State
    position: int
    end: int
    """-1 while unknown."""

    def __str__(self) -> str:
        of = "?" if self.end < 0 else str(self.end)
        return f"{self.task} {self.state.value}: {self.position} of {of}"
