"""The picture of splits and merges, line by line."""

from __future__ import annotations

from anabranch.clients.resize_plan import family
from anabranch.protocol.lineage import Lineage
from anabranch.resize.lineage_picture import draw


def test_splits_go_down_and_merges_go_up() -> None:
    assert draw(Lineage(1, [(0, 2), (1, 4), (2, 3)])) == [
        "generation 0     1         2",
        "partitions 2     4         3",
        "         0 ━━━━━━┯━━━━━━━━━━━━━━━━━",
        "         1 ━━━━━━┿━┯━━━━━━━┯━━━━━━━",
        "         2       ┗━┿━━━━━━━┿━━━━━━━",
        "         3         ┗━━━━━━━┛",
    ]


def test_only_requested_family_is_drawn() -> None:
    lineage = Lineage(3, [(0, 3), (1, 6), (2, 4)])
    assert draw(lineage, family(lineage, 4)) == [
        "generation 0     1       2",
        "partitions 3     6       4",
        "         1 ━━━━━━┯━━━━━━━┯━━━━━━━",
        "         4       ┗━━━━━━━┛",
    ]


def test_topic_never_resized_is_straight_lines() -> None:
    assert draw(Lineage(1, [(0, 2)]))[2:] == ["         0 ━━━━━━", "         1 ━━━━━━"]


def test_merges_below_the_odd_part_go_up_and_splits_down() -> None:
    assert draw(Lineage(3, [(0, 3), (1, 2), (2, 1), (3, 5)])) == [
        "generation 0     1       2       3",
        "partitions 3     2       1       5",
        "         0 ━━━━━━┯━━━━━━━┯━━━━━━━┯━┯━┯━┯━━━━━━━",
        "         1 ━━━━━━┿━━━━━━━┛       ┗━┿━┿━┿━━━━━━━",
        "         2 ━━━━━━┛                 ┗━┿━┿━━━━━━━",
        "         3                           ┗━┿━━━━━━━",
        "         4                             ┗━━━━━━━",
    ]
