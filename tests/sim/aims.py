"""Schedules that aim at one coincidence: one story as the fault, with the usual workload, end and checks.

What comes up once in a thousand random schedules costs a thousand of them each time it is looked for. An aim brings it
about in nearly every schedule, with other timings each: who sleeps, what is late, whose power fails then. The product
has to hold all the same; so aims are scenarios like the others, and planted bugs and defects name the one that shows
them.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Story = Callable[[Any], Awaitable[bool]]
"""Takes a schedule, and returns whether the coincidence came about."""


@dataclass(frozen=True)
class Aim:
    """One story, and what a schedule needs for it."""

    name: str
    story: Story
    resizing: bool = False
    """Whether it is told in the resize scenario."""
    assigning: bool = False
    """Whether it is told in the scenario of groups whose broker assigns."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def reshape(self, shape: Any) -> Any:
        """The character of a schedule, as far as the story leaves it to the seed."""
        return dataclasses.replace(shape, weights={}, chores={}, **self.shape)


Enter = Callable[[Story], Story]
NOTHING: Final[Mapping[str, Any]] = {}
AIMS: Final[dict[str, Aim]] = {}


def aim(
    name: str,
    shape: Mapping[str, Any],
    *,
    resizing: bool = False,
    assigning: bool = False,
    settings: Mapping[str, Any] = NOTHING,
) -> Enter:
    """Put a story on the list; `shape` is what it fixes of a schedule's `Shape`."""

    def enter(story: Story) -> Story:
        AIMS[name] = Aim(name, story, resizing, assigning, shape, settings)
        return story

    return enter


def calm(cluster: Any) -> bool:
    """Whether all nodes are up, every replica is in sync, and no topic is being changed."""
    return all(one.up for one in cluster.machines.values()) and cluster.all_in_isr() and cluster.resting()


for _subject in (
    "transactions",
    "administration",
    "leaders",
    "disks",
    "damage",
    "producers",
    "resizes",
    "groups",
    "deletions",
    "starts",
    "steps",
):
    importlib.import_module(f"tests.sim.aims_of_{_subject}")
