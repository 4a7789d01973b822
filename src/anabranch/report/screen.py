"""Shows the state of a running program: a live screen on a terminal, occasional lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live

PLAIN_EVERY_S: Final = 5.0


class Screen:
    """Shows the latest state; text printed to `console` scrolls by above it."""

    def __init__(self, console: Console, *, plain_every_s: float = PLAIN_EVERY_S) -> None:
        """Create a screen; `plain_every_s` is the time between two lines where there is no terminal."""
        self.console = console
        self._plain_every_s = plain_every_s
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._plain_due_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, now_s: float, *, whole: Callable[[], RenderableType], line: Callable[[], str]) -> None:
        """Show the state, as a screen or in one line."""
        if self._live is not None:
            self._live.update(whole())
        elif now_s >= self._plain_due_s:
            self._plain_due_s = now_s + self._plain_every_s
            self.console.print(line())

    def postpone(self, now_s: float) -> None:
        """Print the next line of state a whole interval after this time, as another line has just been printed."""
        self._plain_due_s = now_s + self._plain_every_s
