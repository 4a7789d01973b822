"""Groups tests for the workers of pytest-xdist: tests with shared resources, or tests that wait.

All others go wherever there is room: one by one, or in stretches of the many tests that one function has, which are
short. Groups go first, the largest at the head. The simulation keeps processors busy, and two processes of its own: by
itself it leaves room for tests that wait. The marks of `--dist loadgroup` do nothing with pytest 9.2, which does not
look where pytest-xdist 3.8 writes them.

pytest-xdist's own schedulers go through all that a worker has done at the end of every test, and through all tests
before every unit of work. With sixteen thousand tests that is a third of what a short test costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = {
    "tests/spark_jobs/": "one Spark",
    "tests/anabranch/cli/test_audit.py": "one Spark",  # at a time
    "tests/test_package.py": "one Spark",
    "tests/dashboard/": "one browser",
    "tests/chaos/test_main.py": "chaos",
    "tests/chaos/test_marathon.py": "chaos",
    "tests/chaos/test_run.py": "chaos",
    "tests/sim/": "simulation",
    "tests/anabranch/cli/": "one cluster for commands",
}


BY_FILE: Final = (
    "tests/anabranch/audit/test_follower.py",
    "tests/anabranch/control/front/test_launched_front.py",
    "tests/anabranch/control/test_bad_requests.py",
    "tests/anabranch/control/test_client.py",
    "tests/anabranch/control/test_openapi.py",
    "tests/anabranch/control/test_states.py",
    "tests/anabranch/judge/",
    "tests/anabranch/testing/test_process_clusters.py",
    "tests/broker/coordinators/test_consumer_protocol_clients.py",
    "tests/broker/test_bad_input.py",
    "tests/broker/test_bad_message_sets.py",
    "tests/clients/streams/test_against_kafka_streams.py",
    "tests/clients/streams/test_against_topology_test_driver.py",
    "tests/contracts/test_error_codes.py",
    "tests/documents/test_documents.py",
    "tests/documents/test_questions.py",
    "tests/interop/",
)
"""The tests of one file share a cluster or what they read, which each worker would make for itself."""
STRETCH: Final = 25
"""A function with more tests than these is tried in stretches of as many."""


def group_of(nodeid: str) -> str:
    """What a test is to be together with; by itself, if with none."""
    group = next((group for prefix, group in TOGETHER.items() if nodeid.startswith(prefix)), None)
    return group or (nodeid.partition("::")[0] if nodeid.startswith(BY_FILE) else nodeid)


def units_of(nodeids: Sequence[str]) -> dict[str, str]:
    """Test -> what it is sent to a worker with: its group, a stretch of its function's tests, or itself alone."""
    functions = [nodeid.partition("[")[0] for nodeid in nodeids]
    counts, seen = Counter(functions), Counter[str]()
    units = {}
    for nodeid, function in zip(nodeids, functions, strict=True):
        unit = group_of(nodeid)
        if unit == nodeid and counts[function] > STRETCH:
            unit = f"{function}, stretch {seen[function] // STRETCH}"
            seen[function] += 1
        units[nodeid] = unit
    return units


class Grouped(LoadScopeScheduling):  # type: ignore[misc]
    """A scope is a unit (`_split_scope` is what pytest-xdist's own schedulers differ by); what is done is forgotten."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._units: dict[str, str] = {}
        self._indices: dict[str, int] = {}

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A worker has collected: all collect the same, or nothing is run."""
        super().add_node_collection(node, collection)
        if not self._units:
            self._units = units_of(collection)
            self._indices = {nodeid: index for index, nodeid in enumerate(collection)}

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget the test, and its unit with the last one, before more work is sent."""
        nodeid = self.registered_collections[node][item_index]
        assigned, unit = self.assigned_work[node], self._units[nodeid]
        del assigned[unit][nodeid]
        if not assigned[unit]:
            del assigned[unit]
        self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        unit, nodeids = self.workqueue.popitem(last=False)
        self.assigned_work[node][unit] = nodeids
        node.send_runtest_some([self._indices[nodeid] for nodeid in nodeids])

    def remove_node(self, node: Any) -> str | None:
        """Send what a worker leaves to others, but for the test that it died in, which would end them too."""
        assigned = self.assigned_work.pop(node)
        if not assigned:
            return None
        unit, nodeids = next(iter(assigned.items()))
        crashed = next(iter(nodeids))
        del nodeids[crashed]
        if not nodeids:
            del assigned[unit]
        self.workqueue.update(assigned)
        for other in self.assigned_work:
            self._reschedule(other)
        return str(crashed)
