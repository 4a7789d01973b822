"""Test files mirror modules: `tests/clients/consumer/test_lease.py` tests `anabranch/clients/consumer/lease.py`.

Modules outside the layers (`anabranch/cluster/in_process.py`, `anabranch/report/`) have their tests in
`tests/anabranch/`. Three kinds of modules need no test file. Other tests call handlers over the wire. `tests/protocol`
tests all declarations of messages. A module without a branch or a loop decides nothing. `ELSEWHERE` lists all other
modules that are tested in another file, and the reason.
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
        "one state machine in several modules: most events of a group pass through all of them",
        "broker/coordinators/groups/: group_table\nbroker/coordinators/classic_groups/: rebalance",
    ),
    "broker/coordinators/consumer_groups/test_heartbeat.py": (
        "most decisions about a KIP-848 group follow from a heartbeat",
        "broker/coordinators/consumer_groups/: admission decision departure expressions member subscribed_topics "
        "target_assignment",
    ),
    "broker/coordinators/consumer_groups/test_classic_members.py": (
        "responses to classic members have the encoding of their assignors",
        "broker/coordinators/consumer_groups/: classic_assignment",
    ),
    "broker/coordinators/consumer_groups/test_uniform_assignor.py": (
        "the input of an assignor, visible only in its assignments",
        "broker/coordinators/consumer_groups/: group_spec",
    ),
    "broker/coordinators/groups/test_group_gates.py": (
        "the stored state of a group, used only by its gates",
        "broker/coordinators/gates/: group_gate_state",
    ),
    "clients/test_group_kinds.py": (
        "lag of groups of every kind, for the control plane and the dashboard",
        "dashboard/collectors/: shared_standings",
    ),
    "broker/coordinators/share_groups/test_share_heartbeat.py": (
        "the state and description of a group, after heartbeats",
        "broker/coordinators/share_groups/: share_administration share_group",
    ),
    "broker/coordinators/streams_groups/test_streams_heartbeat.py": (
        "the state, permissions and description of a group, after heartbeats",
        "broker/coordinators/streams_groups/: streams_admission streams_decision streams_group streams_member tasks",
    ),
    "broker/coordinators/share_partitions/test_shared_partitions.py": (
        "wiring, visible in the responses to members",
        "broker/coordinators/share_partitions/: share_services",
    ),
    "broker/coordinators/share_partitions/test_share_coordinator.py": (
        "the client of the share coordinator: both ends of one request are tested together",
        "broker/coordinators/share_partitions/: share_persister",
    ),
    "protocol/test_consumer_group_records.py": (
        "the common format of group records, tested with the records of one kind of groups",
        "protocol/: group_records",
    ),
    "broker/coordinators/test_transaction_failover.py": (
        "coordinator failover needs several brokers",
        "broker/coordinators/transactions/: marker_sender",
    ),
    "broker/node/test_assembly.py": (
        "part of the assembly of a node",
        "broker/node/: broker_assembly",
    ),
    "broker/network/test_server.py": (
        "parts of a server, which need a socket",
        "broker/node/: app\nbroker/network/: connection\nbroker/dispatch/: services",
    ),
    "broker/storage/test_log.py": (
        "parts that only a log uses",
        "broker/storage/: log_directory memory_files os_files segments",
    ),
    "broker/storage/test_log_append.py": (
        "how a batch is changed before it is stored",
        "broker/storage/: record_rewriting",
    ),
    "controller/test_machine.py": (
        "parts of the controller's state machine: most events pass through all of them",
        "controller/: model outcomes",
    ),
    "contracts/test_zk_session.py": (
        "one contract for both kinds of sessions",
        "controller/zk/: kazoo_client session tree",
    ),
    "clients/consumer/test_consumer.py": (
        "parts of a consumer, which need a cluster",
        "clients/consumer/: consumer_config consumer_partition_assignor consumer_runtime progress_watch steps "
        "topic_gates",
    ),
    "clients/test_admin.py": (
        "functions of an admin client, which need a cluster",
        "clients/: admin_connection group_admin",
    ),
    "clients/producer/test_sender.py": (
        "reactions to refusals, timeouts and lost brokers, visible in the next requests",
        "clients/producer/: transaction_task transaction_errors",
    ),
    "clients/streams/test_task_assignor.py": (
        "one contract for all assignors",
        "clients/streams/: high_availability_task_assignor movements standbys sticky_task_assignor",
    ),
    "clients/streams/test_group_simulation.py": (
        "decisions of a group's leader, which need all members",
        "clients/streams/: group group_assignment group_member",
    ),
    "clients/streams/test_task_machine.py": (
        "parts of the decision when to commit and hand over",
        "clients/streams/: departures input_offsets",
    ),
    "clients/streams/test_stream.py": (
        "steps, which need a topology",
        "clients/streams/: stateless_stream stream_steps table_steps",
    ),
    "clients/streams/test_windowed_stream.py": (
        "steps, which need a topology",
        "clients/streams/: windowed_aggregation",
    ),
    "clients/streams/test_tasks.py": (
        "stores, which need a task",
        "clients/streams/: state_store task_state",
    ),
    "clients/streams/test_streams.py": (
        "parts of an application, visible only from outside",
        "clients/streams/: handover_writer task_inputs task_runner",
    ),
    "protocol/test_codec.py": (
        "the parts of the compiler, whose output is compared with Kafka's bytes",
        "protocol/: decoder_source emitter encoder_source layout",
    ),
    "chaos/test_share_member.py": (
        "the session of a share group member",
        "chaos/: share_session",
    ),
    "chaos/test_marathon.py": (
        "faults that need processes and ZooKeeper",
        "chaos/: marathon_faults",
    ),
    "chaos/test_run.py": (
        "parts of a run, which need processes",
        "chaos/: archive client_faults clients cluster audit_companion fault_table history judgement scene side_topic",
    ),
    "spark_jobs/test_work.py": (
        "they need Spark, and the tests of `tests/spark_jobs` share one session",
        "audit/: findings results metrics audit_snapshot jobs",
    ),
    "spark_jobs/test_audit.py": (
        "parts of one streaming job",
        "spark_jobs/: bucket daemon session stages writer",
    ),
    "anabranch/demo/test_progress.py": (
        "the processes of one demonstration",
        "demo/: reader replay",
    ),
    "anabranch/control/tour/test_guide.py": (
        "parts of a tour, which needs a cluster",
        "control/tour/: failures resizes scene step\ncontrol/: tour_routes",
    ),
    "anabranch/cli/test_context.py": (
        "the storage of contexts, visible in the commands that use one",
        "cli/: context_store",
    ),
    "anabranch/cli/test_tour.py": (
        "the client of one command",
        "control/: tour_client",
    ),
    "anabranch/control/test_state.py": (
        "a former coordinator, which needs a cluster with a frozen node",
        "dashboard/collectors/: newest_topics present_controller present_coordinators",
    ),
    "anabranch/dashboard/test_feed.py": (
        "collectors, which need a cluster and a viewer",
        "dashboard/collectors/: cluster_rows gates groups nodes rest topics",
    ),
    "anabranch/proxy/test_connection.py": (
        "one side of a proxied connection",
        "proxy/: connection_side",
    ),
    "anabranch/cli/test_groups.py": (
        "commands are tested with the functions that they call",
        "cli/: demo features up\ninspect/: closed_gates offset_reset",
    ),
    "anabranch/faults/test_fault_actions.py": (
        "freezing, thawing and killing brokers, which faults do",
        "cluster/: broker_processes",
    ),
    "anabranch/cluster/test_processes.py": (
        "they start processes",
        "cluster/: ensemble\ncli/: process_clusters",
    ),
}


def modules() -> list[Path]:
    """Return every module but `__init__` and `__main__`, relative to the package."""
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
    """Return the path of a module's test file, relative to `tests`."""
    above = () if module.parts[0] in LAYERS else ("anabranch",)
    return Path(*above, module.with_name(f"test_{module.name}"))


def decides(source: str) -> bool:
    """Return whether a module has a branch or a loop; code for type checkers does not count."""
    return any(
        isinstance(node, DECISIONS) and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for node in ast.walk(ast.parse(source))
    )


def excepted() -> list[str]:
    """Return the modules of `ELSEWHERE`."""
    found = []
    for _, lines in ELSEWHERE.values():
        for line in lines.splitlines():
            folder, _, names = line.partition(": ")
            found += [(Path(folder) / f"{name}.py").as_posix() for name in names.split()]
    return found


def without_mirror() -> set[str]:
    """Return the modules that need a test file of their own name and have none."""
    return {
        module.as_posix()
        for module in modules()
        if not (TESTS / mirror_of(module)).exists()
        and not module.as_posix().startswith(BY_THE_WIRE)
        and decides((ROOT / module).read_text())
    }


def test_each_module_has_a_test_file_of_its_name() -> None:
    missing = without_mirror() - set(excepted())
    assert not missing, f"write tests/.../test_NAME.py, or say in ELSEWHERE where they are and why: {sorted(missing)}"


def test_each_exception_is_needed() -> None:
    names = excepted()
    assert len(set(names)) == len(names)
    assert set(names) <= without_mirror(), sorted(set(names) - without_mirror())


@pytest.mark.parametrize("where", ELSEWHERE)
def test_file_named_by_an_exception_has_tests(where: str) -> None:
    assert "def test_" in (TESTS / where).read_text()


@pytest.mark.parametrize(
    ("module", "mirror"),
    [
        ("clients/consumer/lease.py", "clients/consumer/test_lease.py"),
        ("cluster/in_process.py", "anabranch/cluster/test_in_process.py"),
        ("report/page.py", "anabranch/report/test_page.py"),
    ],
)
def test_mirror_of_a_module(module: str, mirror: str) -> None:
    assert mirror_of(Path(module)) == Path(mirror)
    assert (ROOT / module).exists() and (TESTS / mirror).exists()


def test_module_without_branch_or_loop_needs_no_test_file() -> None:
    assert not decides(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import x\nA = 1\ndef f() -> int: return A"
    )
    assert decides("A = [x for x in 'ab']")
    assert decides("def f(a): return a or 1")
