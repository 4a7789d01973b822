"""The audit by `spark-submit` on a standalone cluster whose workers lack the package; one worker dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.spark_jobs import shipping, violations
from anabranch.spark_jobs.java import why_missing
from anabranch.spark_jobs.verdict import OUT_OF_ORDER
from tests.spark_jobs.live import LiveCluster, deliveries
from tests.spark_jobs.standalone import HOME, QUICK, TIMEOUT_S, StandaloneCluster, child, environment

pytestmark = [pytest.mark.spark_cluster]

KEYS = [b"%d" % number for number in range(50)]
CONF = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@contextmanager
def submitted(cluster: StandaloneCluster, directory: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`spark-submit` with everything that we ship."""
    archive, job = shipping.pack(directory), shipping.write_job(directory)
    needs, command = shipping.submission(archive, job, cluster.url, words)
    conf = {**CONF, "spark.pyspark.python": str(cluster.python)}
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    with (directory / "driver.log").open("w") as log_file:
        process = subprocess.Popen(
            [str(HOME / "bin" / command[0]), *settings, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            text=True,
            cwd=directory,
            start_new_session=True,
            env={**environment(directory), **needs},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_events(summary: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until the audit has taken in so many events."""
    deadline_s = time.perf_counter() + 3 * TIMEOUT_S
    while True:
        seen = 0
        if summary.exists():
            buckets = json.loads(summary.read_text()).values()
            seen = sum(counts["events"] for one in buckets for *_, counts in one["tallies"])
        if seen == count:
            return
        log = (summary.parent.parent.parent / "driver.log").read_text()[-3000:]
        assert process.poll() is None, log
        assert time.perf_counter() < deadline_s, f"{seen} of {count} events\n{log}"
        time.sleep(0.1)


def test_worker_failure_does_not_change_verdict(tmp_path: Path) -> None:
    if not os.environ.get("ANABRANCH_SPARK_CLUSTER"):
        pytest.skip("NO SPARK CLUSTER: it takes half a minute; `make audit-cluster` runs it")
    if why_missing() is not None:
        pytest.skip(f"NO SPARK: {why_missing()}")
    (tmp_path / "cluster").mkdir()
    with LiveCluster(1) as live, StandaloneCluster(tmp_path / "cluster", workers=2) as cluster:
        topic = live.create("audited", 2)
        live.produce(topic, [one for key in KEYS for one in deliveries(key, [(n, 0, n) for n in range(4)])])
        words = ("--bootstrap-servers", live.servers, "--topic", topic, "--out", str(tmp_path / "out"), "--follow")
        with submitted(cluster, tmp_path, *words) as process:
            summary = tmp_path / "out" / topic / "summary.json"
            wait_for_events(summary, 4 * len(KEYS), process)
            # What follows is judged by what is remembered of before: sequence 4 comes after 5, in each tenth key.
            later = [[(5, 1, 0), (4, 0, 4), (6, 1, 1)], [(4, 0, 4), (5, 1, 0), (6, 1, 1)]]
            live.produce(
                topic, [one for n, key in enumerate(KEYS) for one in deliveries(key, later[0 if n % 10 == 0 else 1])]
            )
            victim = next(worker for worker in cluster.running if worker.executors)
            victim.kill()
            wait_for_events(summary, 7 * len(KEYS), process)
            os.kill(child(process.pid, shipping.JOB_NAME), signal.SIGINT)
            out, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 1, (tmp_path / "driver.log").read_text()[-3000:]
    assert f"│ delivered       │ {7 * len(KEYS)} " in out, out
    found = list(violations.read(tmp_path / "out" / topic / "violations"))
    assert {(story["kind"], story["key"]) for story in found} == {(OUT_OF_ORDER, str(n)) for n in range(0, 50, 10)}
    assert len(found) == 5
    assert all(story["before"]["sequence"] == 5 for story in found)
