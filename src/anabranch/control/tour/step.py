"""The parts of a story: steps, each with its actions, the view to look at, and its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.control.tour_rows import ActionRow, StepRow


class StoryFailed(Exception):
    """A story cannot continue: a condition that it waited for did not occur."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action, with the HTTP request and the Python call that perform it."""

    title: str
    method: str
    path: str
    body: Any
    python: str

    def row(self) -> ActionRow:
        """The action as a JSON row."""
        return {"title": self.title, "method": self.method, "path": self.path, "body": self.body, "python": self.python}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, and whether it holds."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A point at which a story pauses until the next request."""

    title: str
    text: str
    look: str
    """The view that shows the step, as in the page's URL: `topics/orders`."""
    deeds: tuple[Action, ...] = ()
    claims: tuple[Claim, ...] = ()

    def row(self) -> StepRow:
        """The step as a JSON row."""
        return {
            "title": self.title,
            "text": self.text,
            "look": self.look,
            "deeds": [one.row() for one in self.deeds],
            "claims": [{"text": one.text, "holds": one.holds} for one in self.claims],
        }


@dataclass(slots=True)
class Notes:
    """The actions and claims since the last step."""

    deeds: list[Action] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def step(self, title: str, text: str, look: str) -> Step:
        """Make a step of these actions and claims."""
        step = Step(title, text, look, tuple(self.deeds), tuple(self.claims))
        self.deeds.clear()
        self.claims.clear()
        return step
