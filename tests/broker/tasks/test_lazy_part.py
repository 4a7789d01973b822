"""An unused part costs nothing, and is created once."""

from __future__ import annotations

from anabranch.broker.tasks.lazy_part import LazyPart


def test_lazy_part_is_built_once_at_first_use() -> None:
    built: list[object] = []

    def build() -> object:
        built.append(object())
        return built[-1]

    part = LazyPart(build)
    assert part.built is None and not built
    assert part.get() is part.get() is part.built
    assert len(built) == 1
