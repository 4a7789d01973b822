"""A module's tests are where its name says: those of `anabranch/clients/consumer/lease.py` are in
`tests/clients/consumer/test_lease.py`.

What belongs to no layer of the package (`anabranch/cluster/in_process.py`, `anabranch/report/`) has its tests in
`tests/anabranch/`. Three kinds of modules need no file of their own: handlers, which are asked over the wire by the
tests of what they answer for; declarations of messages, which `tests/protocol` goes through as a whole; and modules
that decide nothing, neither by a branch nor by a loop. For some others `ELSEWHERE` says where they are tested, and why
not under their name.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

import anabranch

ROOT: Final = Path(anabranch.__file__).parent
TESTS: Final = Path(__file__).parent
LAYERS: Final = ("protocol", "clients", "controller", "broker", "spark_jobs", "chaos")
BY_THE_WIRE: Final = ("broker/handlers/", "protocol/apis/")
DECISIONS: Final = (
    *(ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try),
    *(ast.For, ast.AsyncFor, ast.While, ast.comprehension),
)

ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "broker/coordinators/classic_groups/test_group_machine.py": (
        "one machine in several modules: an event of a group goes through most of them",
        "broker/coordinators/groups/: group_table\nbroker/coordinators/classic_groups/: rebalance",
    ),
    "broker/coordinators/consumer_groups/test_heartbeat.py": (
        "a heartbeat goes through most of what is decided about a KIP-848 group",
        "broker/coordinators/consumer_groups/: admission decision departure expressions member subscribed_topics "
        "target_assignment",
    ),
    "broker/coordinators/consumer_groups/test_classic_members.py": (
        "what classic members are told is in the bytes of their assignors",
        "broker/coordinators/consumer_groups/: classic_assignment",
    ),
    "broker/coordinators/consumer_groups/test_uniform_assignor.py": (
        "what an assignor works from shows in what it assigns",
        "broker/coordinators/consumer_groups/: group_spec",
    ),
    "broker/coordinators/groups/test_group_gates.py": (
        "what is kept of a group decides nothing without the gates",
        "broker/coordinators/gates/: group_gate_state",
    ),
    "clients/test_group_kinds.py": (
        "where groups stand is shown by the control plane and the dashboard, of every kind of groups",
        "dashboard/collectors/: shared_standings",
    ),
    "broker/coordinators/share_groups/test_share_heartbeat.py": (
        "a group and how it is described are what heartbeats make of them",
        "broker/coordinators/share_groups/: share_administration share_group",
    ),
    "broker/coordinators/streams_groups/test_streams_heartbeat.py": (
        "a group, what its members may do and how it is described are what heartbeats make of them",
        "broker/coordinators/streams_groups/: streams_admission streams_decision streams_group streams_member tasks",
    ),
    "broker/coordinators/share_partitions/test_shared_partitions.py": (
        "what the parts do together shows in what members are answered",
        "broker/coordinators/share_partitions/: share_services",
    ),
    "broker/coordinators/share_partitions/test_share_coordinator.py": (
        "who asks and who is asked are two ends of one exchange",
        "broker/coordinators/share_partitions/: share_persister",
    ),
    "protocol/test_consumer_group_records.py": (
        "how all records stand in the topic shows in those of one kind",
        "protocol/: group_records",
    ),
    "broker/coordinators/test_transaction_failover.py": (
        "what follows when leadership comes and goes needs brokers between which it does",
        "broker/coordinators/transactions/: marker_sender",
    ),
    "broker/node/test_assembly.py": (
        "the parts of a broker are handed to each other as parts of a node",
        "broker/node/: broker_assembly",
    ),
    "broker/network/test_server.py": (
        "what a server is put together of: a socket is needed to see any of it",
        "broker/node/: app\nbroker/network/: connection\nbroker/dispatch/: services",
    ),
    "broker/storage/test_log.py": (
        "parts of a log that nothing else uses",
        "broker/storage/: record_rewriting log_directory memory_files os_files segments",
    ),
    "controller/test_machine.py": (
        "parts of the controller's machine: an event goes through most of them, and its world plays them as one",
        "controller/: model outcomes",
    ),
    "contracts/test_zk_session.py": (
        "both ZooKeepers are held to one contract",
        "controller/zk/: kazoo_client session tree",
    ),
    "clients/consumer/test_consumer.py": (
        "what a consumer is put together of, in front of a cluster",
        "clients/consumer/: consumer_config consumer_partition_assignor consumer_runtime progress_watch steps "
        "topic_gates",
    ),
    "clients/test_admin.py": (
        "answers of a cluster to an admin",
        "clients/: admin_connection group_admin",
    ),
    "clients/producer/test_sender.py": (
        "what a producer does when a broker refuses, is silent or goes away shows in what it sends",
        "clients/producer/: transaction_task transaction_errors",
    ),
    "clients/streams/test_task_assignor.py": (
        "every assignor is held to the same promises",
        "clients/streams/: high_availability_task_assignor movements standbys sticky_task_assignor",
    ),
    "clients/streams/test_group_simulation.py": (
        "what the leader of a group decides is played with all its members",
        "clients/streams/: group group_assignment group_member",
    ),
    "clients/streams/test_task_machine.py": (
        "a hand-over that is due is part of what the machine decides to commit",
        "clients/streams/: departures input_offsets",
    ),
    "clients/streams/test_stream.py": (
        "what a step does with records is seen in a topology",
        "clients/streams/: stateless_stream stream_steps table_steps",
    ),
    "clients/streams/test_windowed_stream.py": (
        "what a step does with records is seen in a topology",
        "clients/streams/: windowed_aggregation",
    ),
    "clients/streams/test_tasks.py": (
        "a store is what its task makes of it",
        "clients/streams/: state_store task_state",
    ),
    "clients/streams/test_streams.py": (
        "an application is put together of them, and seen from outside",
        "clients/streams/: changelog_reader committer handover_writer task_inputs task_manager task_runner",
    ),
    "protocol/test_codec.py": (
        "the compiler's halves: what they write is compiled and held to Kafka's bytes",
        "protocol/: decoder_source emitter encoder_source layout",
    ),
    "chaos/test_share_member.py": (
        "a session is a member's, and is seen through it",
        "chaos/: share_session",
    ),
    "chaos/test_marathon.py": (
        "processes, kills and ZooKeeper make them",
        "chaos/: marathon_faults",
    ),
    "chaos/test_run.py": (
        "what a run consists of needs processes to be seen at work",
        "chaos/: archive clients cluster audit_companion history judgement scene",
    ),
    "spark_jobs/test_work.py": (
        "they need a Spark, and the tests of `tests/spark_jobs` share one",
        "audit/: findings results metrics audit_snapshot jobs",
    ),
    "spark_jobs/test_audit.py": (
        "parts of one streaming job",
        "spark_jobs/: bucket daemon session stages writer",
    ),
    "anabranch/demo/test_progress.py": (
        "a demonstration is a story that is told by all of them together",
        "demo/: reader replay",
    ),
    "anabranch/control/tour/test_guide.py": (
        "a story is told on a cluster, with all that it needs",
        "control/tour/: failures resizes scene step\ncontrol/: tour_routes",
    ),
    "anabranch/cli/test_context.py": (
        "what is stored of contexts shows in what commands use",
        "cli/: context_store",
    ),
    "anabranch/cli/test_tour.py": (
        "a client is tried by the command that it is for",
        "control/: tour_client",
    ),
    "anabranch/dashboard/test_feed.py": (
        "what is looked at needs a cluster in which it happens, and somebody who looks",
        "dashboard/collectors/: cluster_rows gates groups nodes rest topics",
    ),
    "anabranch/proxy/test_connection.py": (
        "one of the two ends of what is tried there",
        "proxy/: connection_side",
    ),
    "anabranch/cli/test_groups.py": (
        "a command is tried as a person types it, with what it calls",
        "cli/: demo features up\ninspect/: closed_gates offset_reset",
    ),
    "anabranch/faults/test_fault_actions.py": (
        "brokers are frozen, thawed and killed for faults",
        "cluster/: broker_processes",
    ),
    "anabranch/cluster/test_processes.py": (
        "they start processes",
        "cluster/: ensemble\ncli/: process_clusters",
    ),
}


def modules() -> list[Path]:
    """Every module but those that Python gives their names (`__init__`, `__main__`), relative to the package."""
    found: list[Path] = []
    folders = [ROOT]
    while folders:
        for entry in sorted(folders.pop().iterdir()):
            if entry.is_dir():
                folders.append(entry)
            elif entry.suffix == ".py" and not entry.name.startswith("__"):
                found.append(entry.relative_to(ROOT))
    return found


def mirror_of(module: Path) -> Path:
    """Where its tests are, relative to `tests`."""
    above = () if module.parts[0] in LAYERS else ("anabranch",)
    return Path(*above, module.with_name(f"test_{module.name}"))


def decides(source: str) -> bool:
    """Whether there is a branch or a loop in it; what only type checkers see does not count."""
    return any(
        isinstance(node, DECISIONS) and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for node in ast.walk(ast.parse(source))
    )


def excepted() -> list[str]:
    """The modules of `ELSEWHERE`."""
    found = []
    for _, lines in ELSEWHERE.values():
        for line in lines.splitlines():
            folder, _, names = line.partition(": ")
            found += [(Path(folder) / f"{name}.py").as_posix() for name in names.split()]
    return found


def without_mirror() -> set[str]:
    """The modules that should have a test file of their own name and have none."""
    return {
        module.as_posix()
        for module in modules()
        if not (TESTS / mirror_of(module)).exists()
        and not module.as_posix().startswith(BY_THE_WIRE)
        and decides((ROOT / module).read_text())
    }


def test_each_module_has_its_tests_where_its_name_says() -> None:
    missing = without_mirror() - set(excepted())
    assert not missing, f"write tests/.../test_NAME.py, or say in ELSEWHERE where they are and why: {sorted(missing)}"


def test_no_exception_outlives_its_reason() -> None:
    names = excepted()
    assert len(set(names)) == len(names)
    assert set(names) <= without_mirror(), sorted(set(names) - without_mirror())


@pytest.mark.parametrize("where", ELSEWHERE)
def test_where_a_module_is_tested_instead_there_are_tests(where: str) -> None:
    assert "def test_" in (TESTS / where).read_text()


@pytest.mark.parametrize(
    ("module", "mirror"),
    [
        ("clients/consumer/lease.py", "clients/consumer/test_lease.py"),
        ("cluster/in_process.py", "anabranch/cluster/test_in_process.py"),
        ("report/page.py", "anabranch/report/test_page.py"),
    ],
)
def test_where_mirrors_are(module: str, mirror: str) -> None:
    assert mirror_of(Path(module)) == Path(mirror)
    assert (ROOT / module).exists() and (TESTS / mirror).exists()


def test_what_decides_nothing() -> None:
    assert not decides(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x\nA = 1\ndef f() -> int: return A"
    )
    assert decides("A = [x for x in 'ab']")
    assert decides("def f(a): return a or 1")
