"""Generates SUPPORT.md: the supported APIs, the differences from Kafka, and the properties without effect.

Run `python -m anabranch.broker.node.support`. The table of APIs comes from the dispatcher's rows, the profiles and the
first sentence of each handler; the properties come from `broker.config.config_def`. Each difference names a test that
verifies it. The counts of equal answers come from the last comparison with Kafka itself
(`python -m tests.differential --keep`).
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any, Final

from anabranch.broker.config.config_def import Scope, config_def
from anabranch.broker.dispatch.dispatcher import HANDLERS, HandlerRow, peer_versions
from anabranch.broker.profiles.profile import VERSIONS, profile_for
from anabranch.protocol.values import value

COMPARED: Final = Path(__file__).with_name("compared.json")
"""The results of the last complete comparison with Kafka 3.9 (`python -m tests.differential --keep`)."""
COMPARED_WITH_KAFKA_4: Final = Path(__file__).with_name("compared_4.json")
"""The results of the comparison with Kafka 4.1."""


@value
class Difference:
    """A difference from Kafka, and the test that verifies it."""

    what: str
    shown_by: str


DIFFERENCES: Final = (
    Difference(
        "Kerberos is not supported: a node that is configured with GSSAPI does not start.",
        "tests/broker/authentication/test_listener_security.py",
    ),
    Difference(
        "kafka.security.authorizer.AclAuthorizer and StandardAuthorizer name the same authorizer, the only one. The "
        "log names each principal whose requests are refused because it is not a broker.",
        "tests/broker/authorization/test_authorizer_settings.py",
    ),
    Difference(
        "A new group coordinator answers COORDINATOR_LOAD_IN_PROGRESS until the records that it loaded are replicated; "
        "Kafka serves them earlier. Heartbeats get COORDINATOR_NOT_AVAILABLE in that time; Kafka accepts every "
        "heartbeat.",
        "tests/broker/coordinators/groups/test_group_coordinator.py::test_loaded_state_is_served_once_it_is_replicated",
    ),
    Difference(
        "After a client disconnects, only its pending Produce requests are still processed.",
        "tests/broker/network/test_server.py::test_only_produces_of_a_disconnected_peer_are_processed",
    ),
    Difference(
        "The decompressed records of a batch may have 16 times max.message.bytes (or 1 MiB, if that is more), but at "
        "most 256 MiB. message.max.decompressed.ratio (not in Kafka) sets the factor. Larger batches are refused with "
        "MESSAGE_TOO_LARGE.",
        "tests/broker/storage/test_inspection.py::test_batch_with_excessive_decompressed_size_is_refused",
    ),
    Difference(
        "A batch that some consumers could not read is refused with INVALID_RECORD; Kafka accepts some of these: "
        "offset deltas that do not count from 0, header names that are not UTF-8, lengths below -1, and wrong record "
        "lengths in compressed batches. The response names at most 1000 records.",
        "tests/broker/storage/test_inspection.py::test_record_errors_name_offsets_out_of_sequence",
    ),
    Difference(
        "Compaction keeps unreadable batches unchanged and continues; Kafka stops compacting the log.",
        "tests/broker/storage/test_unreadable.py::test_unreadable_batch_is_kept_by_compaction",
    ),
    Difference(
        "max.request.partition.size.limit limits the entries of every request, not only of DescribeTopicPartitions; "
        "its default is 131072. The default of queued.max.request.bytes is 100 MiB; requests up to 64 KiB do not "
        "count.",
        "tests/protocol/test_entries.py",
    ),
    Difference(
        "queued.max.response.bytes (not in Kafka, 128 MiB by default) limits unread responses. A Fetch response gets "
        "half of the remaining bytes, but at least one batch. At the limit, requests with large responses wait, and a "
        "connection that reads nothing is closed after 10 s instead of connections.max.idle.ms.",
        "tests/broker/quotas/test_response_memory.py",
    ),
    Difference(
        "Addresses in quotas are IP addresses; host names are not resolved.",
        "tests/broker/quotas/test_quota_configs.py::test_invalid_quota_requests_are_refused",
    ),
    Difference(
        "Byte quotas count record bytes; Kafka counts whole requests and responses.",
        "tests/broker/quotas/test_quota_configs.py::test_consumer_over_quota_gets_empty_responses_until_it_has_waited",
    ),
    Difference(
        "Topics can shrink, and keys keep their order across resizes (KIP-253). The protocol has tagged fields from "
        "tag 2530 on, two more API keys and error 2530 for this. Responses have the tagged fields only if the request "
        "had one (decision D27). Only batches with a generation can get error 2530. After a resize, "
        "stock producers may be refused (`reshard.legacy.producers`), and a group of stock consumers gets a new "
        "partition once it has committed the earlier records of its keys (`reshard.legacy.consumers`).",
        "tests/contracts/error_cases/data.py::produce_with_an_old_generation",
    ),
    Difference(
        "While the active controller is a node without replicas, which clients cannot see, brokers forward its "
        "requests instead of answering NOT_CONTROLLER.",
        "tests/broker/administration/test_topic_creation.py",
    ),
    Difference(
        "On a full disk only appends fail; Kafka takes the whole log directory offline.",
        "tests/broker/storage/test_log_faults.py",
    ),
    Difference(
        "A broker that restarts after a kill waits until its old ZooKeeper session ends; Kafka exits with an error.",
        "tests/broker/membership/test_registration.py",
    ),
    Difference(
        "A new transaction coordinator answers COORDINATOR_LOAD_IN_PROGRESS until the records that it loaded are "
        "replicated; Kafka acts on records that its next leader may have lost.",
        "tests/broker/coordinators/test_transaction_failover.py"
        "::test_unreplicated_prepare_is_not_acted_on_by_the_next_coordinator",
    ),
    Difference(
        "When the epochs of a producer id are exhausted, InitProducerId with a wrong epoch gets PRODUCER_FENCED, and a "
        "repeated request gets the same response; Kafka answers UNKNOWN_SERVER_ERROR.",
        "tests/broker/coordinators/transactions/test_transaction_requests.py::test_exhausted_epochs_need_a_new_producer_id",
    ),
    Difference(
        "CreatePartitions refuses __consumer_offsets, __transaction_state and __share_group_state: groups and "
        "transactional ids would not find their state. Kafka's tool refuses them, its brokers do not.",
        "tests/controller/test_resize_requests.py::test_topics_of_coordinators_keep_their_partition_count",
    ),
    Difference(
        "Tiered storage is not supported: ListOffsets has no remote offsets, and its properties have no effect.",
        "tests/broker/handlers/test_list_offsets.py",
    ),
)


def page() -> str:
    """The text of SUPPORT.md."""
    compared, with_4 = (json.loads(path.read_text()) for path in (COMPARED, COMPARED_WITH_KAFKA_4))
    (requests, equal), (requests_4, equal_4) = map(totals, (compared, with_4))
    shared = {tuple(row) for row in compared["differences"]}
    missing = [f"- {version}: {', '.join(gaps(version))}." for version in VERSIONS if gaps(version)]
    return "\n".join(
        [
            "# Supported APIs",
            "",
            "`make docs` generates this page from the code; do not edit it. A node shows its clients one version of "
            "Kafka: 3.9 with ZooKeeper, or [the one](docs/compatibility-profiles.md) that `--kafka` selects.",
            "",
            *(summary(version) for version in VERSIONS),
            "",
            f"`tests/differential` sends the same {requests} requests to Apache Kafka 3.9.0 and to Anabranch, in every "
            f"version and with all known edge cases. **{equal / requests:.1%} of the responses are equal**, field by "
            "field, except for ids, times, addresses, the order of hash maps and message texts. The last columns "
            f"count the equal responses. Of {requests_4} responses of Apache Kafka 4.1.1, **{equal_4 / requests_4:.1%} "
            "are equal** to those of a node with profile 4.1.",
            "",
            "The columns show the advertised versions of each API, by compatibility profile. A cell names two ranges "
            "if that version of Kafka has more API versions than are served. GetTelemetrySubscriptions and "
            "PushTelemetry are advertised if `client.telemetry.enable` is true, as in Kafka with a telemetry receiver.",
            "",
            f"| key | API | {' | '.join(VERSIONS)} | what it does | equal responses | of 4.1 |",
            f"|---:|---|{'---|' * len(VERSIONS)}---|---:|---:|",
            *(line(row, compared["apis"], with_4["apis"]) for row in HANDLERS),
            "",
            *(["APIs of these versions of Kafka that are not served:", "", *missing, ""] if missing else []),
            "## Known differences",
            "",
            *(f"- {difference.what}" for difference in DIFFERENCES),
            "",
            "Other differences in the comparison with 3.9:",
            "",
            *(f"- {api}: {why}." for api, why in compared["differences"]),
            "",
            "Other differences in the comparison with 4.1:",
            "",
            *(f"- {api}: {why}." for api, why in with_4["differences"] if (api, why) not in shared),
            "",
            "## Properties without effect",
            "",
            "A node validates and describes these properties like Kafka, but they have no effect. It logs a warning "
            "for each at its start, unless the value is the default. A node with a refused property does not start.",
            "",
            "| why | properties |",
            "|---|---|",
            *properties_without_effect(),
            "",
            "Every error code in a node's responses, with a request that gets it: `python -m "
            "tests.contracts.error_codes`.",
            "",
        ]
    )


def summary(version: str) -> str:
    """Count the served APIs of one version of Kafka."""
    theirs = profile_for(version).ranges
    served = [row for row in HANDLERS if row.name in theirs]
    whole = sum(advertised_range(version, row) == theirs[row.name] for row in served)
    return f"- Kafka {version}: {len(served)} of {len(theirs)} API keys, {whole} of them in all versions."


def gaps(version: str) -> list[str]:
    """The APIs of a version of Kafka that are not served."""
    served = {row.name for row in HANDLERS}
    return [name for name in profile_for(version).ranges if name not in served]


def advertised_range(version: str, row: HandlerRow) -> str:
    """The advertised versions of an API, with all optional features on: "0-11"; empty for none."""
    span = peer_versions(version, True, telemetry=True).others.advertised.get(row.api.key)
    return "" if span is None else f"{span[0]}-{span[1]}" if span[0] != span[1] else f"{span[0]}"


def cell(version: str, row: HandlerRow) -> str:
    """The cell of an API in the column of a Kafka version."""
    theirs, shown = profile_for(version).ranges.get(row.name, ""), advertised_range(version, row)
    return f"{shown} of {theirs}" if theirs and theirs != shown else shown or "-"


def totals(compared: dict[str, Any]) -> tuple[int, int]:
    """Count the compared and the equal answers."""
    counts = compared["apis"].values()
    return sum(one["answers"] for one in counts), sum(one["equal"] for one in counts)


def line(row: HandlerRow, *compared: dict[str, Any]) -> str:
    """The table row of one API."""
    counts = [one.get(row.name) for one in compared]
    equal = " | ".join(f"{one['equal']} of {one['answers']}" if one else "" for one in counts)
    cells = " | ".join(cell(version, row) for version in VERSIONS)
    return f"| {row.api.key} | {row.name} | {cells} | {headline(row)} | {equal} |"


def headline(row: HandlerRow) -> str:
    """The first sentence of a handler's docstring, without the API's name."""
    text = inspect.cleandoc(importlib.import_module(row.module).__doc__ or "").partition("\n\n")[0]
    return " ".join(text.partition(": ")[2].split()).rstrip(".")


def properties_without_effect() -> list[str]:
    """The table rows of broker and topic properties without effect, grouped by reason."""
    names: dict[str, list[str]] = {}
    for scope in (Scope.BROKER, Scope.TOPIC):
        for key in config_def(scope).keys_by_name().values():
            if key.without_effect:
                reason = f"{key.without_effect} (refused)" if key.refused else key.without_effect
                names.setdefault(reason, []).append(f"`{key.name}`" + " of a topic" * (scope is Scope.TOPIC))
    return [f"| {reason} | {', '.join(listed)} |" for reason, listed in sorted(names.items())]


def main(arguments: list[str]) -> int:
    """Write SUPPORT.md."""
    Path(arguments[0] if arguments else "SUPPORT.md").write_text(page())
    return 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
