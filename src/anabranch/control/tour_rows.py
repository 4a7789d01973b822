"""The rows of the guided tour."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict


class ActionRow(TypedDict):
    """An action of a story, as HTTP request and as Python call."""

    title: str
    method: str
    path: str
    body: Any
    python: str


class ClaimRow(TypedDict):
    """A claim of a story."""

    text: str
    holds: bool


class StepRow(TypedDict):
    """A step of a story."""

    title: str
    text: str
    look: Annotated[str, "the view that shows the step, as in the dashboard's URL"]
    deeds: Annotated[list[ActionRow], "the actions since the last step"]
    claims: list[ClaimRow]


class StoryRow(TypedDict):
    """A story of the guided tour."""

    story: Annotated[str, "its name"]
    title: str
    summary: str
    steps: Annotated[int, "the number of steps"]


class TourRow(StoryRow):
    """The position in a story, with the fields of its step; the last position has no step."""

    number: Annotated[int, "the number of the step, from 1 on"]
    over: Annotated[bool, "whether the story has ended"]
    broken: NotRequired[Annotated[str, "why the story could not go on"]]
    text: NotRequired[str]
    look: NotRequired[Annotated[str, "the view that shows the step, as in the dashboard's URL"]]
    deeds: NotRequired[Annotated[list[ActionRow], "the actions since the last step"]]
    claims: NotRequired[list[ClaimRow]]
