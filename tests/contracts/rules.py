"""The rules of the ordered resize, each with the test that fails without it: the table of docs/resize.md.

`make docs` writes it there; a test holds the names to the tests there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple


class Rule(NamedTuple):
    """One rule: its text, and its tests."""

    number: str
    says: str
    tests: tuple[str, ...]


RESIZE: Final = "controller/test_resize.py"
RULES: Final = (
    Rule(
        "R1",
        "each resize has its own generation, never reused",
        (f"{RESIZE}::test_r1_each_resize_is_one_generation_of_the_history",),
    ),
    Rule(
        "R2",
        "epoch and generation of a partition change in one write",
        (f"{RESIZE}::test_r2_epoch_and_generation_change_in_one_write_and_only_where_keys_move",),
    ),
    Rule(
        "R3",
        "plan, then execute: every step is idempotent",
        (f"{RESIZE}::test_r3_new_controller_finishes_resize_interrupted_after_any_effect",),
    ),
    Rule(
        "R4",
        "children, retiring partitions, parents, then publish",
        (f"{RESIZE}::test_r4_resize_is_published_when_every_affected_leader_has_confirmed",),
    ),
    Rule(
        "R5",
        "duplicates first, then the generation of the batch",
        (
            "broker/handlers/test_produce.py::test_duplicate_of_an_older_generation_gets_its_original_offset",
            "broker/replication/test_partition.py::test_batch_of_another_generation_is_refused",
        ),
    ),
    Rule(
        "R6",
        "sealed partitions refuse clients' batches, and accept markers",
        (
            "broker/handlers/test_produce.py::test_batch_for_a_sealed_partition_is_refused",
            "broker/handlers/test_write_txn_markers.py::test_marker_is_written_to_a_sealed_partition",
        ),
    ),
    Rule(
        "R7",
        "a boundary is the exclusive end by a leader that has the cut",
        ("clients/consumer/test_gate.py::test_r7_boundary_is_unknown_after_leader_change",),
    ),
    Rule(
        "R8",
        "the producer's switch is a barrier",
        ("clients/producer/test_switch.py::test_each_planted_defect_is_detected",),
    ),
    Rule(
        "R9",
        "a key epoch opens when all before it are committed, recursively",
        (
            "clients/consumer/test_gate.py::test_r9_child_opens_when_its_parent_is_committed_to_the_cut",
            "model/test_models.py::test_the_products_gate_is_held_against_the_models",
        ),
    ),
    Rule(
        "R10",
        "a member that reaches a boundary flushes and commits",
        ("clients/consumer/test_resized_groups.py::test_r10_boundary_is_committed_when_reached",),
    ),
    Rule(
        "R11",
        "gates are evaluated again after a seek, and at newer batches",
        (
            "clients/consumer/test_progress.py::test_r11_seek_clears_announced_flushed_and_crossed_boundaries",
            "clients/consumer/test_gate.py::test_r11_batch_newer_than_metadata_has_no_key_epoch_yet",
        ),
    ),
    Rule(
        "R12",
        "no metadata shows an epoch ahead of its generation",
        (f"{RESIZE}::test_r12_unpublished_children_and_epochs_are_hidden_from_clients",),
    ),
    Rule(
        "R13",
        "a removed partition leaves a tombstone",
        (f"{RESIZE}::test_r13_drained_retiring_partition_leaves_a_tombstone_and_is_removed",),
    ),
    Rule(
        "R14",
        "a reused index continues its epochs and offsets",
        (
            f"{RESIZE}::test_r14_recreated_index_continues_epochs_and_offsets",
            "broker/replication/test_replica_manager.py::test_recreated_index_drops_the_uncommitted_tail_of_its_previous_log",
        ),
    ),
    Rule(
        "R15",
        "compacted topics grow, but do not shrink",
        (
            "broker/test_resized_compacted_topics.py::test_r15_latest_value_comes_last_after_growth_of_a_compacted_topic",
            "controller/test_resize_requests.py::test_compacted_topics_do_not_shrink",
        ),
    ),
    Rule(
        "R16",
        "the topic's policy decides about producers without generations; an ordered topic refuses them by default",
        (
            "broker/replication/test_legacy_producers.py::test_first_batch_with_a_generation_refuses_stock_producers",
            "broker/replication/test_legacy_producers.py::test_batches_with_correctly_placed_keys_are_accepted",
            "broker/replication/test_topics_with_generations.py::"
            "test_first_generation_batch_waits_for_one_proposal_to_the_controller",
            "controller/test_topics_with_generations.py::test_later_resize_sends_mark_to_leaders",
        ),
    ),
    Rule(
        "R17",
        "resizes wait until every broker can fence",
        (
            "controller/test_resize_requests.py::"
            "test_r17_topic_is_resized_only_when_every_broker_fences_old_generations",
        ),
    ),
    Rule(
        "R18",
        "gates depend on commits, whoever stores the offsets",
        ("clients/consumer/test_listener.py::test_without_auto_commit_boundary_waits_for_application",),
    ),
    Rule(
        "R19",
        "members know at least what their leader knew",
        ("clients/consumer/test_starting_positions.py::test_r19_member_waits_for_metadata_of_its_leader",),
    ),
    Rule(
        "R20",
        "a new partition is read from its start",
        ("clients/consumer/test_starting_positions.py::test_r20_child_is_read_from_its_start_by_any_member",),
    ),
    Rule(
        "R21",
        "a member that may have been replaced delivers nothing",
        ("clients/consumer/test_replaced_members.py::test_member_frozen_past_its_session_delivers_no_stale_records",),
    ),
)


def table() -> Iterator[str]:
    """The table of docs/resize.md, line by line."""
    yield "| rule | text | fails without it (`tests/`) |"
    yield "|---|---|---|"
    for rule in RULES:
        tests = ", ".join(f"`{one}`" for one in rule.tests)
        yield f"| [{rule.number}](#{rule.number.lower()}) | {rule.says} | {tests} |"
