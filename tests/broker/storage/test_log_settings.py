"""Combined settings of a log."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.broker.storage.log_settings import LogSettings
from anabranch.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Compression


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [("delete", True, False), ("compact", False, True), ("compact,delete", True, True)],
)
def test_cleanup_policies_can_be_combined(policy: str, deletes: bool, compacts: bool) -> None:
    settings = LogSettings(cleanup_policy=policy)
    assert (settings.deletes, settings.compacts) == (deletes, compacts)


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Compression.NONE, None),
        ("snappy", Compression.SNAPPY, None),
        ("gzip", Compression.GZIP, 2),
        ("lz4", Compression.LZ4, 4),
        ("zstd", Compression.ZSTD, 6),
    ],
)
def test_each_codec_has_its_own_level(name: str, codec: Compression | None, level: int | None) -> None:
    settings = LogSettings(
        compression_type=name, compression_gzip_level=2, compression_lz4_level=4, compression_zstd_level=6
    )
    assert (settings.codec, settings.compression_level) == (codec, level)


def test_decompressed_size_is_bounded_by_ratio_and_reader_limit() -> None:
    assert LogSettings(max_message_bytes=1).decompressed_bytes_max == 16 << 20
    assert LogSettings(max_message_bytes=2 << 20).decompressed_bytes_max == 32 << 20
    assert LogSettings(max_message_bytes=1, message_max_decompressed_ratio=3).decompressed_bytes_max == 3 << 20
    assert LogSettings(max_message_bytes=1 << 30).decompressed_bytes_max == DECOMPRESSED_BYTES_MAX


def test_log_append_time_is_used_only_if_configured() -> None:
    assert LogSettings(message_timestamp_type="LogAppendTime").uses_log_append_time
    assert not LogSettings().uses_log_append_time


def test_each_setting_has_the_value_of_the_property_of_its_name() -> None:
    names = [one.name for one in dataclasses.fields(LogSettings)]
    of_the_broker = {"message_max_decompressed_ratio", "producer_id_expiration_ms"}
    config: Any = SimpleNamespace(**{name: f"{name} of the topic" for name in names if name not in of_the_broker})
    settings: Any = SimpleNamespace(**{name: f"{name} of the broker" for name in of_the_broker})
    made = LogSettings.of(config, settings)
    assert {name: getattr(made, name) for name in names} == vars(config) | vars(settings)
