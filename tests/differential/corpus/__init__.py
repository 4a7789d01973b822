"""The corpus: importing these modules fills `tests.differential.case.CASES`."""

from tests.differential.corpus import (
    cluster,
    configs,
    consume,
    groups,
    kafka_4,
    log_dirs,
    members,
    offsets,
    old_formats,
    placement,
    produce,
    quotas,
    security,
    three_brokers,
    topics,
    transactions,
)

__all__ = [
    "cluster",
    "configs",
    "consume",
    "groups",
    "kafka_4",
    "log_dirs",
    "members",
    "offsets",
    "old_formats",
    "placement",
    "produce",
    "quotas",
    "security",
    "three_brokers",
    "topics",
    "transactions",
]
