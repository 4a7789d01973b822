"""Draws the splits and merges of a topic: one row per partition, time from left to right, one column per resize.

    generation 0     1         2
    partitions 2     4         3
             0 ━━━━━━┯━━━━━━━━━━━━━━━━━
             1 ━━━━━━┿━┯━━━━━━━┯━━━━━━━
             2       ┗━┿━━━━━━━┿━━━━━━━
             3         ┗━━━━━━━┛

A line that goes down from a partition and begins another is a split; one that ends and goes up is a merge.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.protocol.lineage import KeyEpoch, Lineage

PLAIN = 6
"""Columns between two resizes, in addition to one for each line."""


def draw(lineage: Lineage, partitions: Collection[int] | None = None) -> list[str]:
    """The lines of the picture, for `partitions` or for all."""
    rows = sorted(range(max(count for _, count in lineage.history)) if partitions is None else partitions)
    place = {partition: row for row, partition in enumerate(rows)}
    canvas: list[list[str]] = [[] for _ in rows]
    heads = ["generation ", "partitions "]
    alive: set[int] = set()
    for generation, count in lineage.history:
        bends = [
            (source.partition, partition)
            for partition in rows
            if generation in lineage.class_generations(partition)
            for source in lineage.predecessors(KeyEpoch(partition, generation))
            if source.partition in place
        ]
        for number, head in enumerate((generation, count)):
            heads[number] = heads[number].ljust(11 + len(canvas[0])) + str(head)
        for source, target in sorted(bends, key=lambda bend: (min(bend), max(bend))):
            _bend(canvas, place, alive, source, target)
            alive.add(target)
            alive -= {source} if source >= count else set()
        alive = {partition for partition in rows if partition < count}
        for partition in rows:
            canvas[place[partition]] += ("━" if partition in alive else " ") * PLAIN
    names = [f"{partition:>10} " for partition in rows]
    return [*heads, *(name + "".join(cells).rstrip() for name, cells in zip(names, canvas, strict=True))]


def _bend(canvas: list[list[str]], place: dict[int, int], alive: set[int], source: int, target: int) -> None:
    """Draw one column: a line from a parent down to its child, or from a retiring partition up to its merge target."""
    upper, lower = sorted((place[source], place[target]))
    for partition, row in place.items():
        running = partition in alive
        if row == upper:
            cell = "┯"
        elif row == lower:
            cell = "┗" if source < target else "┛"
        elif upper < row < lower:
            cell = "┿" if running else "│"
        else:
            cell = "━" if running else " "
        canvas[row].append(cell)
        canvas[row].append("━" if (running and row != lower) or row == upper or (row == lower and cell == "┗") else " ")
