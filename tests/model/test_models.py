"""The models: the repaired rules hold in every state of every instance, and each defect is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.broker.coordinators.share_partitions.in_flight import RecordState
from anabranch.broker.coordinators.share_partitions.share_partition import SharePartition
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.protocol import order_gates
from anabranch.protocol.lineage import Lineage
from tests.model import membership
from tests.model.assigning_runs import FROM_THE_START, ONE_SPLIT, assign
from tests.model.deleting import NEITHER, OPEN, Deleting
from tests.model.explorer import explore
from tests.model.large_runs import LARGE
from tests.model.leases import Leases
from tests.model.run import Run
from tests.model.runs import ONE_KEY, RUNS, deliver
from tests.model.sharing import ACCEPT, Sharing

EXPIRE = SharePartition.expire
QUICK = [pytest.param(run, id=f"{model}: {run.name}") for model, runs in RUNS.items() for run in runs if not run.slow]


@pytest.fixture
def fresh_decisions() -> Iterator[None]:
    """What the product decided before it was changed is forgotten, and afterwards what it decided meanwhile."""
    membership.may_hand_out.cache_clear()
    yield
    membership.may_hand_out.cache_clear()


@pytest.mark.parametrize("model", LARGE)
def test_the_large_set_has_rules_that_hold_and_a_defect_for_each_model(model: str) -> None:
    assert {run.finds == "OK" for run in LARGE[model]} == {True, False}


@pytest.mark.parametrize("run", QUICK)
def test_a_run_finds_what_it_has_to(run: Run) -> None:
    result = run.result()
    assert result.as_expected, f"expected {run.finds}: {result.worst}"


def test_the_products_gate_is_held_against_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted (K601): only the next key epoch of the lineage counts."""

    monkeypatch.setattr(Lineage, "sources", Lineage.predecessors)
    found = Run("planted", deliver((((1, 2, 4), (3,)),), 2)).result()
    assert found.worst is not None
    assert "gates disagree" in str(found.worst.violation)


def test_the_function_of_all_gates_is_held_against_what_the_broker_assigns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: gates wait for expired records."""
    product = order_gates.waits
    monkeypatch.setattr(order_gates, "waits", lambda *args, start, **known: product(*args, **known))
    found = Run("planted", assign(ONE_SPLIT, 2, FROM_THE_START, shape="expired")).result()
    assert found.worst is not None
    assert "gates disagree" in str(found.worst.violation)


def test_the_products_lease_is_held_against_the_session_of_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, fresh_decisions: None
) -> None:
    """Planted: the lease lasts until the coordinator has ended the session, and not until it may."""
    monkeypatch.setattr(
        ConsumerGroupMembership, "may_commit", lambda member, now_s: now_s <= member.lease.until and not member.lost
    )
    assert explore(Leases(session=1)).kind == "order"


@pytest.mark.parametrize(
    ("name", "planted", "kind"),
    [
        ("expire", lambda shared, now_ms: EXPIRE(shared, now_ms + 1), "two"),
        (
            "_fate",
            lambda shared, one, type_: RecordState.ACKNOWLEDGED if type_ is ACCEPT else RecordState.ARCHIVED,
            "early",
        ),
        ("standing_after", lambda shared, batches: (batches[-1].last + 1, 0), "lost"),
    ],
)
def test_the_products_share_partition_is_held_against_the_models_books(
    name: str, planted: object, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: locks end early; a release archives; the start offset passes what is in flight."""
    monkeypatch.setattr(SharePartition, name, planted)
    assert explore(Sharing()).kind == kind


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (1, 2, 1), (2, 1, 2), (1, 2, 1, 2)], ids=str)
def test_every_gate_opens_in_the_end_when_records_are_deleted_and_leaders_change(counts: tuple[int, ...]) -> None:
    assert explore(Deleting(counts, 1, deletions=2, leader_changes=2)).kind == "OK"
    assert explore(Deleting(counts, 2)).kind == "OK"


def test_a_reader_that_keeps_deleted_records_behind_a_closed_gate_is_found_to_be_stuck() -> None:
    """Planted (found: a group was stuck after a deletion and leader changes)."""
    assert explore(Deleting((1, 2, 1), 1, rule=NEITHER)).kind == "stuck"


def test_gates_that_open_by_log_starts_are_found_to_break_the_order() -> None:
    assert explore(Deleting((1, 2), 1, rule=OPEN)).kind == "order"


def test_every_repaired_rule_is_explored_with_crashes() -> None:
    assert sum(1 for _ in deliver(ONE_KEY, 2, crashes=1)()) == 62
