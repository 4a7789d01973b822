"""A table of faults by name, to which each fault adds itself with a decorator."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from anabranch.chaos.scene import Scene

Fault = Callable[[Scene], Awaitable[str | None]]


class FaultTable(dict[str, Fault]):
    """Faults by name, in the order of the report."""

    def add(self, name: str) -> Callable[[Fault], Fault]:
        """Add a fault."""

        def enter(function: Fault) -> Fault:
            self[name] = function
            return function

        return enter

    def add_for_node(self, name: str) -> Callable[[Callable[[Scene, int], Awaitable[str | None]]], Fault]:
        """Add a fault of one node, which the scene chooses."""

        def enter(function: Callable[[Scene, int], Awaitable[str | None]]) -> Fault:
            @self.add(name)
            @functools.wraps(function)
            async def of_victim(scene: Scene) -> str | None:
                victim = await scene.victim()
                return None if victim is None else await function(scene, victim)

            return of_victim

        return enter
