"""Options of the source: Spark's names in any case, and one-line errors."""

from __future__ import annotations

import pytest

from anabranch.clients.tls import TlsSettings
from anabranch.spark_jobs.source_options import EARLIEST, LATEST, SECURED, Options, Position

MINIMAL = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def test_defaults_equal_those_of_spark_kafka_source() -> None:
    batch, stream = Options.of(MINIMAL), Options.of(MINIMAL, streaming=True)
    assert (batch.start, stream.start) == (Position(bound=EARLIEST), Position(bound=LATEST))
    assert batch.end == Position(bound=LATEST)
    assert (batch.topics, batch.assigned, batch.pattern) == (("t",), {}, None)
    assert batch.fail_on_data_loss
    assert not batch.headers
    assert not batch.committed_only
    assert (batch.offsets_per_trigger, batch.partitions_min, batch.records_per_partition_max) == (None, None, None)


def test_option_names_are_case_insensitive() -> None:
    options = Options.of(
        {
            "BOOTSTRAP.servers": "h:1,i:2",
            "Subscribe": " t, u ,t",
            "startingoffsets": '{"t": {"0": 23, "1": -1}, "u": {"0": -2}}',
            "endingOffsets": '{"t": {"0": 50, "1": -1}, "u": {"0": 7}}',
            "failOnDataLoss": "FALSE",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": "10",
            "minPartitions": "4",
            "maxRecordsPerPartition": "1000",
            "startingOffsetsByTimestampStrategy": "latest",
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.group.id": "somebody",
        }
    )
    assert (options.servers, options.topics) == ("h:1,i:2", ("t", "u"))
    assert options.start == Position(offsets={"t": {"0": 23, "1": -1}, "u": {"0": -2}})
    assert options.end == Position(offsets={"t": {"0": 50, "1": -1}, "u": {"0": 7}})
    assert (options.fail_on_data_loss, options.headers, options.late_times_are_latest) == (False, True, True)
    assert (options.offsets_per_trigger, options.partitions_min, options.records_per_partition_max) == (10, 4, 1000)
    assert options.committed_only
    assert options.client == {"isolation.level": "read_committed", "max.partition.fetch.bytes": "1000"}


def test_isolation_level_may_have_upper_case() -> None:
    """Otherwise a batch would end at the high watermark, and wait for it while a transaction is open."""
    options = Options.of({**MINIMAL, "kafka.isolation.level": "READ_COMMITTED"})
    assert options.committed_only
    assert options.client == {"isolation.level": "read_committed"}


def test_assign_and_pattern_are_alternatives_to_subscribe() -> None:
    assigned = Options.of({"bootstrap.servers": "h:1", "assign": '{"t": [2, 0], "u": [1]}'})
    assert (assigned.topics, assigned.assigned) == (("t", "u"), {"t": (0, 2), "u": (1,)})
    assert Options.of({"bootstrap.servers": "h:1", "subscribePattern": "t-.*"}).pattern == "t-.*"


def test_timestamps_override_offsets() -> None:
    given = {**MINIMAL, "startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}
    assert Options.of(given).start == Position(times_ms={"t": {"0": 5}})
    assert Options.of({**given, "startingTimestamp": "7"}).start == Position(time_ms=7)
    assert Options.of({**given, "endingTimestamp": "9"}).end == Position(time_ms=9)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "h:1", "subscribe": " , "}, "exactly one of subscribe"),
        ({**MINIMAL, "assign": '{"t": [0]}'}, "exactly one of subscribe"),
        ({**MINIMAL, "startingOffsets": "17"}, "startingOffsets is earliest, latest or JSON"),
        ({**MINIMAL, "startingOffsets": "{"}, "startingOffsets is not JSON"),
        ({**MINIMAL, "startingOffsets": '{"t": 3}'}, "JSON object with topics"),
        ({**MINIMAL, "startingOffsets": '{"t": {"0": "x"}}'}, "'x' is not a whole number"),
        ({**MINIMAL, "startingOffsets": '{"t": {"0": -3}}'}, "-2 for earliest"),
        ({**MINIMAL, "startingOffsets": "latest"}, "cannot be latest"),
        ({**MINIMAL, "endingOffsets": "earliest"}, "cannot be earliest"),
        ({**MINIMAL, "endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
        ({**MINIMAL, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a number from 1"),
        ({**MINIMAL, "minPartitions": "many"}, "minPartitions is a number from 1"),
        ({**MINIMAL, "failOnDataLoss": "maybe"}, "failondataloss is one of true, false"),
        ({**MINIMAL, "minOffsetsPerTrigger": "5"}, "minoffsetspertrigger"),
        ({**MINIMAL, "kafka.no.such.thing": "5"}, "kafka.no.such.thing is not supported"),
        ({**MINIMAL, "kafka.isolation.level": "serial"}, "isolation.level is one of read_uncommitted"),
        ({"bootstrap.servers": "h:1", "subscribePattern": "("}, "subscribePattern is not a regular expression"),
        ({"bootstrap.servers": "h:1", "assign": '{"t": 1}'}, "JSON object with topics"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Options.of(options)


def test_security_properties_are_kept_apart_and_hidden() -> None:
    secured = {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "planted",
        "ssl.truststore.location": "ca.pem",
    }
    options = Options.of({**MINIMAL, **{f"kafka.{name}": value for name, value in secured.items()}})
    assert options.secured == secured
    assert not options.client
    assert "planted" not in repr(options)


def test_every_tls_property_is_known() -> None:
    assert {name for name in SECURED if name.startswith("ssl.")} == {
        f"ssl.{name.replace('_', '.')}" for name in TlsSettings.__dataclass_fields__
    }
