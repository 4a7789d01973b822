"""The lineages of audited topics: queried from the cluster, and saved to a file for when the topic is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from anabranch.protocol.lineage import Lineage
from anabranch.spark_jobs.reader import TopicReader
from anabranch.spark_jobs.source_options import OPEN, Client


def ask(servers: str, topics: Iterable[str], client: Client = OPEN, *, timeout_s: float = 10.0) -> dict[str, Lineage]:
    """Return topic -> lineage of the ordered topics; `client` has the security properties.

    Raises KafkaError or OSError if no broker answers within `timeout_s`.
    """
    requested = [MetadataRequestTopic(name=topic) for topic in sorted(set(topics))]
    request = MetadataRequest(topics=requested, allow_auto_topic_creation=False, generation_aware=True)
    if not requested:
        return {}
    with TopicReader(servers, client, timeout_s=timeout_s) as reader:
        response: MetadataResponse = reader._retry(lambda: reader._ask_any(request))
    return {
        topic.name: Lineage(topic.base, [(step.generation, step.count) for step in topic.history])
        for topic in response.topics
        if topic.name is not None and topic.base > 0 and topic.history
    }


def save(path: Path, lineages: Mapping[str, Lineage]) -> None:
    """Save lineages to a file for `load`; it keeps those of other topics."""
    known = {**load(path), **lineages}
    rows = {topic: {"base": one.base, "history": one.history} for topic, one in sorted(known.items())}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(rows))
    fresh.replace(path)


def load(path: Path) -> dict[str, Lineage]:
    """Load saved lineages; empty without a file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    return {topic: Lineage(one["base"], [tuple(step) for step in one["history"]]) for topic, one in found.items()}
