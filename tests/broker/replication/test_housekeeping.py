"""Goal: a disk that refuses puts work off, a bug ends it loudly, and long work lets requests through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from broker.replication.housekeeping import in_steps, periodically


def turns(*outcomes: Exception | None) -> tuple[Callable[[], bool], list[int]]:
    """Work that ends so, turn by turn; a ValueError follows, which ends it."""
    done: list[int] = []

    def work() -> bool:
        done.append(len(done))
        outcome = outcomes[len(done) - 1] if len(done) <= len(outcomes) else ValueError("a bug")
        if outcome is not None:
            raise outcome
        return False

    return work, done


@pytest.mark.parametrize("outcomes", [(None, None), (OSError("disk"), None), (None, OSError("disk"), OSError("disk"))])
def test_work_comes_back_until_it_shows_a_bug(
    outcomes: tuple[Exception | None, ...], caplog: pytest.LogCaptureFixture
) -> None:
    for repeat in (lambda work: periodically(0, work), lambda work: in_steps(lambda: 0.0, work)):
        caplog.clear()
        work, done = turns(*outcomes)
        with pytest.raises(ValueError, match="a bug"):
            asyncio.run(asyncio.wait_for(repeat(work), 60))
        assert len(done) == len(outcomes) + 1
        assert sum("has to wait for its next turn" in line for line in caplog.messages) == sum(map(bool, outcomes))
        assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


def test_between_two_steps_others_have_their_turn() -> None:
    async def story() -> None:
        others = steps = 0

        def step() -> bool:
            nonlocal steps
            assert others >= steps, "somebody was let through after each step"
            steps += 1
            if steps == 5:
                raise ValueError("enough")
            return True

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        busy = asyncio.create_task(other())
        try:
            with pytest.raises(ValueError, match="enough"):
                await asyncio.wait_for(in_steps(lambda: 0.0, step), 60)
        finally:
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)

    asyncio.run(story())
