"""Plays one story at a time: begins it, continues on request, and restores the cluster at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.tour import failures, resizes
from anabranch.control.tour.scene import Scene
from anabranch.control.tour.step import Step, StoryFailed
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.control.tour_rows import StoryRow, TourRow


@dataclass(frozen=True, slots=True)
class Story:
    """A story: its name, texts, and steps."""

    name: str
    title: str
    summary: str
    steps: int
    play: Callable[[Scene], AsyncGenerator[Step, None]]

    def row(self) -> StoryRow:
        """The story as a JSON row."""
        return {"story": self.name, "title": self.title, "summary": self.summary, "steps": self.steps}


STORIES: Final[tuple[Story, ...]] = (
    Story(
        "leader",
        "A leader dies",
        "Acknowledged records survive in a new epoch; the old leader returns as a follower.",
        4,
        failures.play_leader_dies,
    ),
    Story(
        "zombie",
        "A zombie controller",
        "A frozen controller is replaced, and resumes without knowing.",
        4,
        failures.play_zombie_controller,
    ),
    Story(
        "lost-record",
        "The data loss that KIP-903 prevents",
        "A late request loses acknowledged records; then the same with the fence.",
        8,
        failures.play_lost_record,
    ),
    Story(
        "order",
        "A split and a merge, in order",
        "Two resizes under load; all records of a key stay in order.",
        4,
        resizes.play_split_and_merge,
    ),
    Story(
        "kafka",
        "The same resize in Kafka",
        "The same keys and the same readers, without generations and gates.",
        3,
        resizes.play_kafka_resize,
    ),
    Story(
        "transaction",
        "A transaction across a resize",
        "It begins before a split and commits after it, atomically.",
        4,
        resizes.play_transaction_across_resize,
    ),
)


class Guide:
    """Plays stories on one cluster."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._story: Story | None = None
        self._scene: Scene | None = None
        self._steps: AsyncGenerator[Step, None] | None = None
        self._step: asyncio.Task[dict[str, Any]] | None = None
        self._number = 0
        self._row: TourRow | None = None

    @property
    def row(self) -> TourRow | None:
        """The position in the current story; None without one."""
        return self._row

    async def begin(self, on: Any, name: str, make_scene: Callable[[Any], Scene] = Scene) -> TourRow:
        """Begin a story, and end the current one; returns the first step. Raises UnknownNode or ActionRefused."""
        story = next((one for one in STORIES if one.name == name), None)
        if story is None:
            raise UnknownNode(f"there is no story {name}; there are {', '.join(one.name for one in STORIES)}")
        scene = make_scene(on)
        scene.check_can_play()
        async with self._turn:
            await self._end()
            self._story, self._scene, self._number = story, scene, 0
            self._steps = _narrate(story, self._scene)
            return await self._next()

    async def next_step(self) -> TourRow:
        """Return the next step, or `over` at the end. Raises ActionRefused without a story."""
        async with self._turn:
            if self._steps is None:
                raise ActionRefused("no story is running; start one")
            return await self._next()

    async def end(self) -> None:
        """End the story, even in the middle of a step, and restore the cluster."""
        if self._step is not None:
            self._step.cancel()
        async with self._turn:
            await self._end()

    async def _next(self) -> TourRow:
        assert self._story is not None
        assert self._steps is not None
        story, self._number = self._story, self._number + 1
        # A client that disconnects must not stop a story in the middle of a step.
        self._step = asyncio.create_task(self._take(self._steps), name=f"tour: {story.name}")
        await asyncio.wait({self._step})
        if self._step.cancelled():
            raise ActionRefused("the story has ended")
        outcome = self._step.result()
        self._row = cast("TourRow", {**story.row(), "number": self._number, **outcome})
        if outcome["over"]:
            await self._end(keep=True)
        return self._row

    async def _take(self, steps: AsyncGenerator[Step, None]) -> dict[str, Any]:
        try:
            return {"over": False, **(await anext(steps)).row()}
        except StopAsyncIteration:
            return {"over": True}
        except (StoryFailed, ActionRefused, KafkaError, OSError, TimeoutError) as error:
            return {"over": True, "broken": str(error) or type(error).__name__}

    async def _end(self, *, keep: bool = False) -> None:
        if self._step is not None:
            self._step.cancel()
            await asyncio.gather(self._step, return_exceptions=True)
        if self._steps is not None:
            await self._steps.aclose()
        if self._scene is not None:
            await self._scene.close()
        self._story = self._scene = self._steps = self._step = None
        if not keep:
            self._row = None


async def _narrate(story: Story, scene: Scene) -> AsyncGenerator[Step, None]:
    """Play the story after the cluster is complete."""
    await scene.is_complete()
    async with contextlib.aclosing(story.play(scene)) as steps:
        async for step in steps:
            yield step
