"""The walk of docs/hosts.md, with TLS and tokens on every door, a host that is cut off, and the audit by Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.cluster import zookeeper
from anabranch.spark_jobs import java
from tests.hosts.network import why_unavailable
from tests.hosts.walk import main

pytestmark = [pytest.mark.hosts, pytest.mark.zookeeper, pytest.mark.processes, pytest.mark.spark_cluster]


def test_walk_of_the_page_about_several_machines_ends_with_a_clean_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.environ.get("ANABRANCH_SPARK_CLUSTER"):
        pytest.skip("NO WALK OVER HOSTS: it takes minutes; `make audit-cluster` runs it")
    for reason in (why_unavailable(), zookeeper.why_unavailable(), java.why_missing()):
        if reason:
            pytest.skip(f"NO WALK OVER HOSTS: {reason}")
    with capsys.disabled():
        main(tmp_path)
