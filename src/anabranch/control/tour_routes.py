"""The routes of the guided tour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypedDict

from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Done, Route
from anabranch.control.tour.guide import STORIES
from anabranch.control.tour_rows import StoryRow, TourRow

if TYPE_CHECKING:
    from anabranch.control.controlled_cluster import TourGuide


class HasGuide(Protocol):
    """The interface of a controlled object with a tour."""

    @property
    def guide(self) -> TourGuide | None:
        """The tour's guide; created at the first request."""


class StoriesRow(TypedDict):
    """The stories of the guided tour."""

    stories: list[StoryRow]
    told: Annotated[TourRow | None, "the position in the current story; null without one"]


async def get_tour(on: HasGuide, request: ControlRequest) -> StoriesRow:
    """Get every story, and the position in the current one."""
    return {"stories": [one.row() for one in STORIES], "told": _guide(on).row}


async def begin_story(on: ControlledCluster, request: ControlRequest) -> TourRow:
    """Begin a story; returns its first step."""
    return await _guide(on).begin(on, request.words["story"])


async def continue_story(on: HasGuide, request: ControlRequest) -> TourRow:
    """Get the next step."""
    return await _guide(on).next_step()


async def end_story(on: HasGuide, request: ControlRequest) -> Done:
    """End the story."""
    await _guide(on).end()
    return {}


def _guide(on: HasGuide) -> TourGuide:
    assert on.guide is not None
    return on.guide


TOUR_ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/tour", "The stories of the guided tour, and the state of the running one.", get_tour),
    Route("POST", "/v1/tour/next", "The next step of the story.", continue_story, waits=True),
    Route("POST", "/v1/tour/{story}", "Start a story, and run its first step.", begin_story, waits=True),
    Route("DELETE", "/v1/tour", "End the story, and repair the cluster.", end_story, waits=True),
)
