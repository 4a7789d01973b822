"""All logs of this broker: opens them when a replica needs them, checkpoints what only memory knows, moves them.

A log is opened (and recovered, if the last life ended without a clean stop) when the controller first names the
partition, not at start: a broker with thousands of logs is ready at once. The log remembers the topic's id, so that one
of a deleted namesake is never taken for this topic's. With several directories a new log goes where the fewest are, or
where AlterReplicaLogDirs wants it. A deleted one is put aside and removed after `file.delete.delay.ms`, so that a topic
deleted by mistake can be rescued by hand for that long; what a crash leaves of it goes at the next start.

A move to another directory is a copy there, a `future` log, that takes the log's place when it has all of it: flushed
and closed, the old one put aside, the copy renamed. A crash leaves the old log, or, between the last two steps, a copy
without one: then the copy is complete, and becomes the log when it is next needed.

Flushing, compaction and removal are done in small steps, one a call, because they share the event loop with requests.
Source: Kafka's `LogManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from anabranch.broker.storage.cleaner import Cleaning, cleanable_part, is_worth_cleaning
from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_directory import Key, LogDirectory, name_of
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
    from anabranch.broker.storage.files import Files

log = logging.getLogger(__name__)


class LogManager:
    """The logs below one or more directories."""

    def __init__(
        self,
        files: Files | Mapping[str, Files],
        settings: BrokerSettings,
        topic_config: Callable[[str], TopicConfig],
        clock_ms: Callable[[], int],
    ) -> None:
        by_path = files if isinstance(files, Mapping) else {settings.data_dir or "/memory": files}
        self.directories = [LogDirectory(path, one) for path, one in by_path.items()]
        self._settings = settings
        self._topic_config = topic_config
        self._clock_ms = clock_ms
        self._logs: dict[Key, PartitionLog] = {}
        self._homes: dict[Key, LogDirectory] = {}
        self._futures: dict[Key, tuple[LogDirectory, PartitionLog]] = {}
        self._preferred: dict[Key, LogDirectory] = {}
        self._cleaning: Cleaning | None = None
        self._uncleanable: set[PartitionLog] = set()
        self._cleaned_later: set[PartitionLog] = set()
        self._flushed_later: set[PartitionLog] = set()
        self._unsaved: dict[Key, None] = {}
        """Of whose offsets the checkpoints may say something else."""
        self._unflushed: dict[Key, None] = {}
        """Which may have sealed segments that were not flushed."""
        self._compacted: dict[Key, None] = {}

    def load_checkpoints(self) -> None:
        """Read what the last life wrote, and remove the logs it had deleted."""
        for directory in self.directories:
            directory.load()

    def high_watermark(self, topic: str, index: int) -> int:
        """The last checkpointed high watermark; 0 for a partition that has none."""
        return self.home((topic, index)).high_watermarks.offsets.get((topic, index), 0)

    def logs(self) -> Iterable[tuple[Key, PartitionLog]]:
        """All open logs with their partitions."""
        return self._logs.items()

    def placed(self) -> Iterator[tuple[LogDirectory, Key, PartitionLog, bool]]:
        """All open logs with the directories that they are in; last, whether it is a copy in the making."""
        for key, opened in self._logs.items():
            yield self._homes[key], key, opened, False
        for key, (directory, future) in self._futures.items():
            yield directory, key, future, True

    # -- where --------------------------------------------------------------------------------------------------

    def home(self, key: Key) -> LogDirectory:
        """Where a partition's log is, or where a new one is to go."""
        known = self._homes.get(key)
        if known is not None:
            return known
        if len(self.directories) == 1:
            return self.directories[0]
        found = [directory for directory in self.directories if directory.holds(key)]
        if len(found) > 1:
            found.sort(key=lambda one: max(one.files.names(name_of(key)), default=""))
            log.error("%s is in several directories; the one that goes on longest counts", name_of(key))
        if found:
            return found[-1]
        preferred = self._preferred.get(key)
        return preferred or min(self.directories, key=lambda one: one.log_count)

    def directory(self, path: str) -> LogDirectory:
        """The directory of a name. LOG_DIR_NOT_FOUND if there is none."""
        for one in self.directories:
            if one.path == path:
                return one
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log directory {path} is not found in the config.")

    def prefer(self, topic: str, index: int, path: str) -> None:
        """Where the log of a partition is to be made, when it is."""
        self._preferred[topic, index] = self.directory(path)

    # -- opening and deleting -----------------------------------------------------------------------------------

    def open(self, topic: str, index: int, topic_id: bytes) -> PartitionLog:
        """The log of a partition, made if it is new. INCONSISTENT_TOPIC_ID if the directory is another topic's."""
        key = (topic, index)
        if key not in self._logs:
            self._finish_swap(key)
        home = self.home(key)
        known = home.topic_id(name_of(key))
        if any(known) and any(topic_id) and known != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name_of(key)} holds another topic of this name")
        opened = self._logs.get(key)
        if opened is None:
            opened = home.open(key, self._log_settings(topic), self._clock_ms())
            self._keep(key, opened, home)
        if any(topic_id) and not any(known):
            home.set_topic_id(name_of(key), topic_id)
        return opened

    def delete(self, topic: str, index: int) -> None:
        """Forget a partition's log, open or not; its files go when `file.delete.delay.ms` has passed."""
        key = (topic, index)
        self.drop_future(topic, index)
        home = self.home(key)
        opened = self._logs.pop(key, None)
        for known in (self._homes, self._preferred, self._unsaved, self._unflushed, self._compacted):
            known.pop(key, None)
        home.forget(key)
        if opened is not None:
            self._let_go(opened)
        home.discard(name_of(key), self._clock_ms(), self._topic_config(topic).file_delete_delay_ms)

    def remove_deleted(self) -> None:
        """Remove the logs that were deleted long enough ago."""
        for directory in self.directories:
            directory.remove_deleted(self._clock_ms())

    def _keep(self, key: Key, opened: PartitionLog, home: LogDirectory) -> None:
        self._logs[key], self._homes[key] = opened, home
        self._note_policy(key, opened)
        opened.touched = partial(self._touched, key)
        opened.touched()

    def _touched(self, key: Key) -> None:
        self._unsaved[key] = self._unflushed[key] = None

    def _note_policy(self, key: Key, opened: PartitionLog) -> None:
        if opened.settings.compacts:
            self._compacted[key] = None
        else:
            self._compacted.pop(key, None)

    def _let_go(self, opened: PartitionLog) -> None:
        self._stop_cleaning(opened)
        opened.durability.on_cut = None
        opened.segments.close()

    # -- moving -------------------------------------------------------------------------------------------------

    def future(self, topic: str, index: int) -> PartitionLog | None:
        """The copy that is to become a partition's log, if it is being moved; opened if an earlier life began it."""
        key = (topic, index)
        known = self._futures.get(key)
        if known is not None:
            return known[1]
        if len(self.directories) == 1:
            return None
        for directory in self.directories:
            name = directory.future_of(key)
            if name is not None:
                return self._open_future(key, directory, name)
        return None

    def future_directory(self, topic: str, index: int) -> LogDirectory | None:
        """The directory that a partition's log is moving to; None if it is not."""
        known = self._futures.get((topic, index))
        return None if known is None else known[0]

    def begin_future(self, topic: str, index: int, path: str) -> PartitionLog:
        """An empty copy of a partition's log in another directory; it is not compacted while it is being moved."""
        key, directory = (topic, index), self.directory(path)
        current = self._logs[key]
        self._stop_cleaning(current)
        directory.log_count += 1
        future = self._open_future(key, directory, directory.new_future(key, self._clock_ms()))
        topic_id = self._homes[key].topic_id(name_of(key))
        if any(topic_id):
            directory.set_topic_id(future.directory, topic_id)
        return future

    def drop_future(self, topic: str, index: int) -> None:
        """Give up a move."""
        key = (topic, index)
        known = self._futures.pop(key, None)
        if known is not None:
            known[1].segments.close()
        if len(self.directories) > 1:
            for directory in self.directories:
                name = directory.future_of(key)
                if name is not None:
                    directory.discard(name, self._clock_ms(), 0)

    def promote_future(self, topic: str, index: int) -> PartitionLog:
        """Let a copy that has everything take the place of its log, which must not be used any more. Raises OSError."""
        key = (topic, index)
        directory, future = self._futures[key]
        before, home = self._logs[key], self._homes[key]
        future.close()
        del self._futures[key]
        self._let_go(before)
        home.discard(name_of(key), self._clock_ms(), self._topic_config(topic).file_delete_delay_ms)
        high_watermark = home.high_watermarks.offsets.get(key, 0)
        home.forget(key)
        directory.files.rename(future.directory, name_of(key))
        directory.high_watermarks.put(key, high_watermark)
        opened = PartitionLog.open(
            directory.files,
            name_of(key),
            before.settings,
            self._clock_ms(),
            log_start_offset=before.log_start_offset,
            recovery_point=future.log_end_offset,
            clean=True,
        )
        opened.producers = before.producers
        for entry in before.epochs.entries:
            if entry.epoch > opened.epochs.latest_epoch:
                opened.epochs.assign(entry.epoch, entry.start_offset)
        opened.cleaned_to = before.cleaned_to
        opened.durability.reached = before.durability.reached
        directory.watch(key, opened)
        self._keep(key, opened, directory)
        return opened

    def _open_future(self, key: Key, directory: LogDirectory, name: str) -> PartitionLog:
        settings = self._log_settings(key[0])
        future = PartitionLog.open(directory.files, name, settings, self._clock_ms(), clean=directory.clean)
        self._futures[key] = (directory, future)
        return future

    def _finish_swap(self, key: Key) -> None:
        """A copy without its log is complete: the last life ended between the two steps of a swap."""
        if len(self.directories) == 1 or any(one.holds(key) for one in self.directories):
            return
        for directory in self.directories:
            name = directory.future_of(key)
            if name is not None:
                log.info("%s becomes %s: a move ends that was interrupted", name, name_of(key))
                directory.files.rename(name, name_of(key))
                return

    # -- settings -----------------------------------------------------------------------------------------------

    def config_changed(self, topic: str, index: int) -> None:
        """Hold an open log to its topic's present configuration."""
        opened = self._logs.get((topic, index))
        if opened is not None:
            opened.settings = self._log_settings(topic)
            self._note_policy((topic, index), opened)

    def adopt(self, settings: BrokerSettings) -> None:
        """Hold every open log to the broker's present settings."""
        self._settings = settings
        for topic, index in self._logs:
            self.config_changed(topic, index)

    # -- work from time to time ---------------------------------------------------------------------------------

    def checkpoint(self, high_watermarks: Iterable[tuple[str, int, int]]) -> None:
        """Write all offsets that moved since the last time. Partitions not named keep their high watermarks.

        A directory that refuses does not keep the others from theirs.
        """
        for topic, index, offset in high_watermarks:
            self.home((topic, index)).high_watermarks.put((topic, index), offset)
        moved: dict[LogDirectory, list[tuple[Key, PartitionLog]]] = {one: [] for one in self.directories}
        for key in self._unsaved:
            moved[self._homes[key]].append((key, self._logs[key]))
        self._unsaved.clear()
        for directory, logs in moved.items():
            try:
                directory.checkpoint(logs)
            except OSError as reason:
                log.error("the checkpoints in %s have to wait: %s", directory.path, reason)

    def flush_step(self) -> bool:
        """Flush one sealed segment, so that the next life need not scan it; whether there was one.

        A log whose disk refuses comes again when the others are done.
        """
        for key in list(self._unflushed):
            opened = self._logs[key]
            if not opened.durability.has_sealed_unflushed:
                del self._unflushed[key]
            elif opened not in self._flushed_later:
                try:
                    opened.durability.flush_sealed()
                except KafkaError as reason:
                    log.warning("%s", reason)
                    self._flushed_later.add(opened)
                    opened.changed()
                    continue
                self._unsaved[key] = None
                return True
        self._flushed_later.clear()
        return False

    def clean_step(self, high_watermark: Callable[[Key], int]) -> bool:
        """Do a piece of compaction, on the dirtiest log there is; whether there may be more to do at once.

        A log whose disk refuses comes again when the others are done.
        """
        cleaning = self._cleaning
        if cleaning is None:
            self._cleaning = self._next_cleaning(high_watermark)
            if self._cleaning is None:
                self._cleaned_later.clear()
            return self._cleaning is not None
        try:
            if not cleaning.step():
                self._cleaning = None
                cleaning.log.touched()
        except KafkaError as damage:
            log.error("%s: not compacted any more in this life: %s", cleaning.log.directory, damage)
            self._uncleanable.add(cleaning.log)
            self._cleaning = None
        except OSError as reason:
            log.warning("%s: compaction has to wait: %s", cleaning.log.directory, reason)
            self._cleaned_later.add(cleaning.log)
            self._cleaning = None
        return True

    def _next_cleaning(self, high_watermark: Callable[[Key], int]) -> Cleaning | None:
        now_ms = self._clock_ms()
        left_out = self._uncleanable | self._cleaned_later
        dirty = []
        for key in self._compacted:
            opened = self._logs[key]
            if opened in left_out or key in self._futures:
                continue
            dirt = cleanable_part(opened, high_watermark(key), now_ms)
            if is_worth_cleaning(opened, dirt):
                dirty.append((dirt.ratio, dirt, opened, key))
        if not dirty:
            return None
        _, dirt, opened, key = max(dirty, key=lambda one: one[0])
        return Cleaning(self._homes[key].files, opened, dirt, now_ms)

    def _stop_cleaning(self, opened: PartitionLog | None = None) -> None:
        if self._cleaning is not None and opened in (None, self._cleaning.log):
            self._cleaning.abandon()
            self._cleaning = None

    def close(self) -> None:
        """Close every log; if all went well, say so, and the next life opens them without a scan."""
        unclean: set[LogDirectory] = set()
        self._stop_cleaning()
        for directory, _, opened, _ in self.placed():
            try:
                opened.close()
            except OSError as reason:
                log.error("%s: not closed properly: %s", opened.directory, reason)
                unclean.add(directory)
        for directory in self.directories:
            try:
                directory.checkpoint(one for one in self._logs.items() if self._homes[one[0]] is directory)
                if directory not in unclean:
                    directory.mark_clean()
            except OSError as reason:
                log.error("the checkpoints could not be written: %s", reason)
        for known in (self._logs, self._homes, self._futures, self._unsaved, self._unflushed, self._compacted):
            known.clear()

    def _log_settings(self, topic: str) -> LogSettings:
        config = self._topic_config(topic)
        return LogSettings(
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
            message_max_decompressed_ratio=self._settings.message_max_decompressed_ratio,
            flush_messages=config.flush_messages,
            producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
        )
