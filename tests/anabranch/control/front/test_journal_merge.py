"""Exchanges of several nodes get one order and numbers that lead back to their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from anabranch.control.front.journal_merge import exchange_number, merge_journals, place_of

if TYPE_CHECKING:
    from anabranch.journal.entry import ExchangeRow

NODES = (1, 2, 100)


def exchange(number: int, at_s: float) -> ExchangeRow:
    return cast("ExchangeRow", {"number": number, "at": at_s})


def test_exchanges_are_ordered_by_time_and_numbered_by_time_and_node() -> None:
    found = merge_journals({1: [exchange(1, 10.0), exchange(2, 12.0)], 100: [exchange(1, 11.0)]}, NODES, offsets_s={})
    assert [one["at"] for one in found] == [10.0, 11.0, 12.0]
    numbers = [one["number"] for one in found]
    assert numbers == sorted(set(numbers))
    assert [NODES[place_of(one)] for one in numbers] == [1, 100, 1]


def test_number_of_an_exchange_is_the_same_in_every_query() -> None:
    wide = merge_journals({1: [exchange(1, 10.0), exchange(2, 12.0)]}, NODES, {})
    narrow = merge_journals({1: [exchange(2, 12.0)]}, NODES, {})
    assert narrow[0]["number"] == wide[1]["number"] == exchange_number(12.0, 0)


def test_exchanges_of_two_nodes_at_one_moment_have_two_numbers() -> None:
    found = merge_journals({2: [exchange(1, 10.0)], 1: [exchange(1, 10.0)]}, NODES, {})
    assert [NODES[place_of(one["number"])] for one in found] == [1, 2]


def test_clock_of_another_machine_is_corrected() -> None:
    found = merge_journals({1: [exchange(1, 10.0)], 2: [exchange(1, 500.0)]}, NODES, {2: -491.0})
    assert [one["at"] for one in found] == [9.0, 10.0]


def test_exchanges_are_limited_to_the_last_ones_after_a_number() -> None:
    rows = {1: [exchange(one, float(one)) for one in range(1, 10)]}
    after = merge_journals(rows, NODES, {}, after=exchange_number(6.0, 0))
    assert [one["at"] for one in after] == [7.0, 8.0, 9.0]
    assert [one["at"] for one in merge_journals(rows, NODES, {}, limit=2)] == [8.0, 9.0]


def test_exchanges_after_the_first_journal_was_read_are_left_for_the_next_query() -> None:
    found = merge_journals({1: [exchange(1, 1.0)], 2: [exchange(1, 2.0)]}, NODES, {}, until_s=1.5)
    assert [one["at"] for one in found] == [1.0]
