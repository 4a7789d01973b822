"""A data directory belongs to one node of one cluster."""

from __future__ import annotations

import pytest

from anabranch.broker.config.config_def import ConfigError
from anabranch.broker.node.meta_properties import META_PROPERTIES, claim_directories
from anabranch.broker.storage.memory_files import MemoryFiles


def test_empty_directory_is_claimed_and_accepted_again() -> None:
    files = MemoryFiles()
    claim_directories({"a": files}, 3, "cluster")
    assert files.read_file(META_PROPERTIES) == b"version=0\nbroker.id=3\ncluster.id=cluster\n"
    claim_directories({"a": files, "b": MemoryFiles()}, 3, "cluster")


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "named"), [(4, "cluster", "broker.id 3"), (3, "other", "cluster.id")]
)
def test_a_directory_of_another_node_or_cluster_is_refused(node_id: int, cluster_id: str, named: str) -> None:
    mine, theirs = MemoryFiles(), MemoryFiles()
    claim_directories({"b": theirs}, 3, "cluster")
    with pytest.raises(ConfigError, match=f"the data in b belongs to {named}"):
        claim_directories({"a": mine, "b": theirs}, node_id, cluster_id)


def test_comments_and_unknown_keys_are_ignored() -> None:
    files = MemoryFiles()
    files.write_file(META_PROPERTIES, b"#Mon Nov 23\nversion=0\nbroker.id=3\ncluster.id=a=b\nx=1\n\n")
    claim_directories({"a": files}, 3, "a=b")


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\xff\xfe\x80"])
def test_damaged_file_is_refused_with_what_to_do(content: bytes) -> None:
    files = MemoryFiles()
    files.write_file(META_PROPERTIES, content)
    with pytest.raises(ConfigError, match="use another --data-dir"):
        claim_directories({"a": files}, 3, "cluster")
