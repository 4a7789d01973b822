"""A topic beside the resized one in a chaos run, with clients of its own: what the run asks of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from anabranch import Admin
from anabranch.chaos.clients import CLIENT_FAILURES
from anabranch.chaos.history import Place, Send
from anabranch.clients.group_admin import committed_offsets


class SideTopic(Protocol):
    """The topic, its clients, and the judgement of what they did."""

    awaited: str
    """What is done when the clients have caught up, for the reader of the run."""

    async def begin(self, admin: Admin) -> list[asyncio.Task[None]]:
        """Create the topic, and start all clients; a task that ends early has failed."""

    def end_of_faults(self) -> None:
        """Note that no more faults follow."""

    async def done(self, admin: Admin, ends: Mapping[Place, int]) -> bool:
        """Whether the clients have caught up. `ends`: the ends of what is acknowledged in the resized topic."""

    async def stop(self) -> None:
        """End all clients."""

    async def failures(self) -> list[str]:
        """Read what the clients have left behind; return what is wrong with the run itself."""

    def judge(self, sends: Sequence[Send]) -> Iterable[str]:
        """Return every violation. `sends` are those to the resized topic."""

    def summary(self) -> str:
        """Summarize the topic in one line."""


async def read_commits(admin: Admin, group: str) -> dict[Place, int]:
    """Return the offsets that a group has committed; none if they cannot be read now.

    A commit whose response was lost may be among them, and is then not repeated.
    """
    try:
        found = await committed_offsets(admin.network, group)
    except CLIENT_FAILURES:
        return {}
    return {(one.topic, one.partition): offset for one, offset in found.items()}


async def has_committed(admin: Admin, group: str, ends: Mapping[Place, int]) -> bool:
    """Whether a group has committed everything up to these ends."""
    committed = await read_commits(admin, group)
    return all(committed.get(place, 0) >= end for place, end in ends.items())
