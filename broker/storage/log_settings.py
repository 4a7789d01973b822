"""The log properties of a topic's configuration, with Kafka's names and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from anabranch.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Compression
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig

UNLIMITED: Final = -1
INT64_MAX: Final = 2**63 - 1
WEEK_MS: Final = 7 * 24 * 3600 * 1000
DAY_MS: Final = 24 * 3600 * 1000


@value(kw_only=True)
class LogSettings:
    """The settings of one partition log; a change of the topic's configuration replaces the whole object."""

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = WEEK_MS
    retention_bytes: int = UNLIMITED
    cleanup_policy: str = "delete"
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    max_message_bytes: int = 1048588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    message_downconversion_enable: bool = True
    message_max_decompressed_ratio: int = 16
    flush_messages: int = INT64_MAX
    producer_id_expiration_ms: int = DAY_MS

    @classmethod
    def of(cls, config: TopicConfig, settings: BrokerSettings) -> Self:
        """Return the settings of a topic's logs on a broker."""
        return cls(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            cleanup_policy=config.cleanup_policy,
            delete_retention_ms=config.delete_retention_ms,
            min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
            max_compaction_lag_ms=config.max_compaction_lag_ms,
            max_message_bytes=config.max_message_bytes,
            compression_type=config.compression_type,
            compression_gzip_level=config.compression_gzip_level,
            compression_lz4_level=config.compression_lz4_level,
            compression_zstd_level=config.compression_zstd_level,
            message_timestamp_type=config.message_timestamp_type,
            message_timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            message_downconversion_enable=config.message_downconversion_enable,
            message_max_decompressed_ratio=settings.message_max_decompressed_ratio,
            flush_messages=config.flush_messages,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
        )

    @property
    def decompressed_bytes_max(self) -> int:
        """Return the largest uncompressed size of one batch's records; it limits the time and memory of inspections."""
        return min(max(self.max_message_bytes, 1 << 20) * self.message_max_decompressed_ratio, DECOMPRESSED_BYTES_MAX)

    @property
    def deletes(self) -> bool:
        """Check whether retention deletes segments by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Check whether the log is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Return the largest age of the active segment: compaction leaves this segment out, however late it is."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def uses_log_append_time(self) -> bool:
        """Check whether records get the broker's time (LogAppendTime)."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def codec(self) -> Compression | None:
        """Return the codec of stored batches; None keeps the producer's."""
        if self.compression_type == "producer":
            return None
        return Compression.by_name("none" if self.compression_type == "uncompressed" else self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """Return the level of that codec; None if it has no levels."""
        match self.codec:
            case Compression.GZIP:
                return self.compression_gzip_level
            case Compression.LZ4:
                return self.compression_lz4_level
            case Compression.ZSTD:
                return self.compression_zstd_level
        return None
