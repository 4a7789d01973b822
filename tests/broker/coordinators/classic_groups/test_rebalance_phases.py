"""The two phases of a rebalance as data: deadlines, awaited members, extensions."""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups.rebalance_phases import AssignmentPhase, JoinPhase


def test_a_join_phase_lasts_for_the_rebalance_timeout() -> None:
    phase = JoinPhase()
    assert not phase.is_due(10**9), "none is on"
    phase.begin(1_000, 60_000)
    assert not phase.delayed
    assert not phase.is_due(60_999) and phase.is_due(61_000)
    phase.end()
    assert phase.deadline_ms is None and not phase.is_due(10**9)


def test_further_members_extend_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    phase = JoinPhase()
    phase.begin_delayed(0, 7_000, 3_000)
    assert phase.delayed and phase.deadline_ms == 3_000
    phase.note_others_joined()
    assert phase.prolong(3_000, 3_000) and phase.deadline_ms == 6_000
    phase.note_others_joined()
    assert phase.prolong(6_000, 3_000) and phase.deadline_ms == 7_000, "what is left of the rebalance timeout"
    phase.note_others_joined()
    assert not phase.prolong(7_000, 3_000)
    assert not phase.delayed


def test_initial_delay_without_further_members_is_not_extended() -> None:
    phase = JoinPhase()
    phase.begin_delayed(0, 60_000, 3_000)
    assert not phase.prolong(3_000, 3_000)
    phase.begin_delayed(0, 1_000, 3_000)  # a rebalance timeout shorter than the delay
    phase.note_others_joined()
    assert not phase.prolong(3_000, 3_000)


def test_members_that_have_not_synced_are_late_at_the_deadline() -> None:
    phase = AssignmentPhase()
    phase.begin(["a", "b", "c"], 500)
    phase.remove_pending_sync("a")
    phase.rename("b", "b2")
    phase.rename("a", "a2")
    assert phase.late(499) == [] and phase.deadline_ms == 500
    assert phase.late(500) == ["b2", "c"]
    assert phase.late(501) == [], "they are given up once"
    phase.begin(["a"], 500)
    phase.remove_pending_sync("a")
    assert phase.deadline_ms is None


def test_proposal_covers_every_member_and_is_accepted_once() -> None:
    phase = AssignmentPhase()
    assert phase.propose(["a", "b"], {"a": b"x", "stranger": b"y"}) == {"a": b"x", "b": b""}
    assert phase.accept() == {"a": b"x", "b": b""}
    assert phase.accept() == {}
    phase.begin(["a"], 500)
    phase.propose(["a"], {})
    phase.end()
    assert (phase.proposed, phase.unsynced, phase.deadline_ms) == ({}, set(), None)
