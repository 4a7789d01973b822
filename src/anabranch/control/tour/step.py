"""What a story is made of: steps, each with what was done, what to look at, and what is claimed of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class StoryFailed(Exception):
    """A story could not go on: what it waited for did not come."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that was done, and how anybody does it."""

    title: str
    method: str
    path: str
    body: Any
    python: str

    def row(self) -> dict[str, Any]:
        """For a program."""
        return {"title": self.title, "method": self.method, "path": self.path, "body": self.body, "python": self.python}


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said to be so, and whether it was found to be."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A story stops here until it is told to go on."""

    title: str
    text: str
    look: str
    """The view that shows it, as the page's address has it: `topics/orders`."""
    deeds: tuple[Action, ...] = ()
    claims: tuple[Claim, ...] = ()

    def row(self) -> dict[str, Any]:
        """For a program."""
        return {
            "title": self.title,
            "text": self.text,
            "look": self.look,
            "deeds": [one.row() for one in self.deeds],
            "claims": [{"text": one.text, "holds": one.holds} for one in self.claims],
        }


@dataclass(slots=True)
class Notes:
    """What has been done and claimed since the last step."""

    deeds: list[Action] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def step(self, title: str, text: str, look: str) -> Step:
        """The next step, with all of that."""
        step = Step(title, text, look, tuple(self.deeds), tuple(self.claims))
        self.deeds.clear()
        self.claims.clear()
        return step
