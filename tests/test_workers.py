"""Each group of tests exists: a renamed file would lose its Spark or its schedules. All tests are sent, none twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workers import BY_FILE, STRETCH, TOGETHER, Grouped, group_of, units_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("prefix", [*TOGETHER, *BY_FILE])
def test_what_is_kept_together_exists(prefix: str) -> None:
    path, _, name = prefix.partition("::")
    assert (ROOT / path).exists()
    assert not name or f"\ndef {name}" in (ROOT / path).read_text()


def test_others_go_by_themselves() -> None:
    assert group_of("tests/model/test_models.py::test_a[b]") == "tests/model/test_models.py::test_a[b]"
    assert group_of("tests/sim/test_resizing.py::test_planted_defect_is_removed") == "simulation"
    assert group_of("tests/spark_jobs/test_lines.py::test_x") == "one Spark"


def test_tests_that_share_a_cluster_go_by_their_file() -> None:
    many = [f"tests/interop/test_old_clients.py::test_a[{number}]" for number in range(STRETCH + 1)]
    assert set(units_of(many).values()) == {"tests/interop/test_old_clients.py"}
    assert group_of("tests/anabranch/cli/test_audit.py::test_x") == "one Spark"


def test_many_tests_of_one_function_are_sent_in_stretches() -> None:
    many = [f"tests/protocol/test_codec.py::test_a[{number}]" for number in range(2 * STRETCH + 1)]
    few = [f"tests/protocol/test_codec.py::test_b[{number}]" for number in range(STRETCH)]
    units = units_of([*many, *few])
    assert [len({units[one] for one in part}) for part in (many[:STRETCH], many[STRETCH : 2 * STRETCH], many)] == [
        1,
        1,
        3,
    ]
    assert [units[one] for one in few] == few


def test_stretches_do_not_divide_a_group() -> None:
    many = [f"tests/spark_jobs/test_checks.py::test_a[{number}]" for number in range(STRETCH + 1)]
    assert set(units_of(many).values()) == {"one Spark"}


class Worker:
    """Runs what it is sent, up to a place in it."""

    def __init__(self) -> None:
        self.gateway = self
        self.id = "gw"
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(config: pytest.Config, workers: list[Worker], nodeids: list[str]) -> Any:
    scheduler = Grouped(config)
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, nodeids)
    scheduler.schedule()
    return scheduler


@pytest.fixture
def of_two(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> pytest.Config:
    monkeypatch.setattr(pytestconfig.option, "tx", ["2*popen"])
    return pytestconfig


NODEIDS = [
    *(f"tests/model/test_a.py::test_{number}" for number in range(9)),
    *(f"tests/model/test_a.py::test_many[{number}]" for number in range(STRETCH + 4)),
    *(f"tests/sim/test_resizing.py::test_{number}" for number in range(5)),
]


def test_each_test_is_sent_once_and_forgotten_when_done(of_two: pytest.Config) -> None:
    workers = [Worker(), Worker()]
    scheduler = scheduled(of_two, workers, NODEIDS)
    done: list[int] = []
    while not all(worker.shutting_down for worker in workers):
        for worker in workers:
            if worker.sent:
                done.append(worker.sent.pop(0))
                scheduler.mark_test_complete(worker, done[-1])
                assert sum(map(len, scheduler.assigned_work[worker].values())) == len(worker.sent)
                assert all(scheduler.assigned_work[worker].values())
    done += [index for worker in workers for index in worker.sent]
    assert sorted(done) == list(range(len(NODEIDS)))


def test_tests_of_a_crashed_worker_go_to_another_but_for_the_one_that_crashed(of_two: pytest.Config) -> None:
    crashing, other = Worker(), Worker()
    scheduler = scheduled(of_two, [crashing, other], NODEIDS)
    first, second = crashing.sent[:2]
    scheduler.mark_test_complete(crashing, first)
    assert scheduler.remove_node(crashing) == NODEIDS[second]
    done: list[int] = []
    while not other.shutting_down:
        done.append(other.sent.pop(0))
        scheduler.mark_test_complete(other, done[-1])
    assert sorted([first, second, *done, *other.sent]) == list(range(len(NODEIDS)))
