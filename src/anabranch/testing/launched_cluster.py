"""Runs `anabranch up` in a child process, for tests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.testing.running_cluster import RunningCluster

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient


class CannotStart(RuntimeError):
    """A cluster could not be started; the message says why."""


@contextlib.contextmanager
def launched_cluster(options: Sequence[str], *, stop_timeout_s: float = 10) -> Iterator[RunningCluster]:
    """Run `anabranch up` while the block runs. The cluster ends with this process, also when that is killed.

    Args:
        options: The options of the command; with `--control` the cluster has a control plane.
        stop_timeout_s: How long the cluster may take to stop.

    Raises:
        CannotStart: The command ended without a ready line; its own output is on stderr.
    """
    from anabranch.cluster.zookeeper import die_with_parent

    # The environment may have the token of another cluster, which this cluster's clients do not know.
    words = [sys.executable, "-m", "anabranch.cli.main", "up", "--control-token", "", *options]
    with subprocess.Popen([*die_with_parent(), *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            head, *pairs = process.stdout.readline().split() or [""]
            if head != "ready":
                raise CannotStart(f"the cluster did not start, its own output says why: {' '.join(words)}")
            known = dict(one.split("=", 1) for one in pairs)
            yield RunningCluster(known["bootstrap"], client_of(known["control"]) if "control" in known else None)
        finally:
            process.terminate()
            try:
                process.wait(stop_timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()


def client_of(url: str) -> ControlClient:
    """The client of a control plane."""
    from anabranch.control.client import ControlClient

    return ControlClient(url)
