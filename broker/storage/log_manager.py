"""The logs of a broker: opens, checkpoints, flushes, deletes and moves them; `LogCleaner` compacts them.

A log is opened, and recovered after an unclean shutdown, when the controller first names the partition. A broker with
thousands of logs therefore starts fast. A log stores its topic id, so the log of a deleted topic of the same name is
never used. A new log goes to the directory with the fewest logs, or to the one that AlterReplicaLogDirs chose. A
deleted log is renamed, and can be restored until its removal after `file.delete.delay.ms` or at the next start.

A move copies a log to another directory, as a future log. When the copy has everything, it is flushed and closed, the
old log is renamed for deletion, and the copy is renamed to replace it. A crash leaves the old log; between the last two
steps it leaves only the copy, which is complete and becomes the log when it is next opened.

Flushing, compaction, removal and checkpoints run in small steps, because they share the event loop with requests.
Source: Kafka's `LogManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.broker.storage.log import PartitionLog
from anabranch.broker.storage.log_cleaner import LogCleaner
from anabranch.broker.storage.log_directory import Key, LogDirectory, name_of, newest_segment
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings, TopicConfig
    from anabranch.broker.storage.files import Files

log = logging.getLogger(__name__)

LOGS_PER_STEP: Final = 100
"""Logs that one step visits, each for some microseconds."""


class LogManager:
    """The logs in one or more log directories."""

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
        self._cleaner = LogCleaner(clock_ms)
        self._unsaved: dict[Key, None] = {}
        """Partitions whose offsets may differ from the checkpoints."""
        self._unflushed: dict[Key, None] = {}
        """Partitions that may have unflushed sealed segments."""
        self._flushing: list[Key] = []
        """The rest of them in this round of flushes, the last one first."""

    def load_checkpoints(self) -> None:
        """Read the checkpoints, and remove deleted logs."""
        for directory in self.directories:
            directory.load()

    def high_watermark(self, topic: str, index: int) -> int:
        """Return the checkpointed high watermark of a partition; 0 if it has none."""
        return self.home((topic, index)).high_watermarks.offsets.get((topic, index), 0)

    def logs(self) -> Iterable[tuple[Key, PartitionLog]]:
        """Return all open logs with their partitions."""
        return self._logs.items()

    def open_logs(self) -> Iterator[tuple[LogDirectory, Key, PartitionLog, bool]]:
        """Yield directory, partition, log, and whether it is a future log, for all open logs."""
        for key, opened in self._logs.items():
            yield self._homes[key], key, opened, False
        for key, (directory, future) in self._futures.items():
            yield directory, key, future, True

    # -- where --------------------------------------------------------------------------------------------------

    def home(self, key: Key) -> LogDirectory:
        """Return the directory of a partition's log, or the one for a new log."""
        known = self._homes.get(key)
        if known is not None:
            return known
        if len(self.directories) == 1:
            return self.directories[0]
        found = [directory for directory in self.directories if directory.holds(key)]
        if len(found) > 1:
            found.sort(key=lambda one: newest_segment(one, key))
            log.error("%s is in several directories; using the one with the newest segment", name_of(key))
        if found:
            return found[-1]
        preferred = self._preferred.get(key)
        return preferred or min(self.directories, key=lambda one: one.log_count)

    def directory(self, path: str) -> LogDirectory:
        """Return the directory with a path. Raises KafkaError with LOG_DIR_NOT_FOUND."""
        for one in self.directories:
            if one.path == path:
                return one
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log directory {path} is not found in the config.")

    def prefer(self, topic: str, index: int, path: str) -> None:
        """Choose the directory in which a partition's log will be created."""
        self._preferred[topic, index] = self.directory(path)

    # -- opening and deleting -----------------------------------------------------------------------------------

    def open(self, topic: str, index: int, topic_id: bytes) -> PartitionLog:
        """Open the log of a partition; create it if it is missing.

        Raises KafkaError with INCONSISTENT_TOPIC_ID if the log belongs to another topic of this name.
        """
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
            opened.durability.wrote(home.set_topic_id(name_of(key), topic_id))
        return opened

    def delete(self, topic: str, index: int) -> None:
        """Delete a partition's log, open or not; its files are removed after `file.delete.delay.ms`."""
        key = (topic, index)
        self.drop_future(topic, index)
        home = self.home(key)
        opened = self._logs.pop(key, None)
        for known in (self._homes, self._preferred, self._unsaved, self._unflushed):
            known.pop(key, None)
        self._cleaner.remove(key)
        home.forget(key)
        if opened is not None:
            self._let_go(opened)
        home.discard(name_of(key), self._clock_ms(), self._topic_config(topic).file_delete_delay_ms)

    def remove_deleted(self) -> Iterator[None]:
        """Remove the files of deleted logs whose delay has passed; yield after each log."""
        for directory in self.directories:
            yield from directory.remove_deleted(self._clock_ms())

    def _keep(self, key: Key, opened: PartitionLog, home: LogDirectory) -> None:
        self._logs[key], self._homes[key] = opened, home
        self._cleaner.add(key, opened, home)
        opened.touched = partial(self._mark_unsaved, key)
        opened.touched()

    def _mark_unsaved(self, key: Key) -> None:
        self._unsaved[key] = self._unflushed[key] = None

    def _let_go(self, opened: PartitionLog) -> None:
        self._cleaner.abort(opened)
        opened.durability.on_cut = None
        opened.segments.close()

    # -- moving -------------------------------------------------------------------------------------------------

    def future(self, topic: str, index: int) -> PartitionLog | None:
        """Return a partition's future log, or None; open it if an earlier process created it."""
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
        """Return the directory to which a partition's log is moving, or None."""
        known = self._futures.get((topic, index))
        return None if known is None else known[0]

    def begin_future(self, topic: str, index: int, path: str) -> PartitionLog:
        """Create an empty future log in another directory; compaction of the log stops during the move."""
        key, directory = (topic, index), self.directory(path)
        current = self._logs[key]
        self._cleaner.abort(current)
        self.drop_future(topic, index)  # a copy that could not be opened
        topic_id = self._homes[key].topic_id(name_of(key))
        directory.log_count += 1
        try:
            future = self._open_future(key, directory, directory.new_future(key, self._clock_ms()))
            if any(topic_id):
                future.durability.wrote(directory.set_topic_id(future.directory, topic_id))
        except OSError:
            self.drop_future(topic, index)
            raise
        return future

    def drop_future(self, topic: str, index: int) -> None:
        """Cancel a move and delete the future log."""
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
        """Replace a log by its complete future log; the old log must not be used afterwards.

        Raises OSError; another call then continues, and no record can be appended until one succeeds.
        """
        key = (topic, index)
        directory, future = self._futures[key]
        before, home = self._logs[key], self._homes[key]
        future.close()
        directory.forget(key)
        directory.high_watermarks.put(key, home.high_watermarks.offsets.get(key, 0))
        directory.log_starts.put(key, before.log_start_offset)
        directory.write_checkpoints()
        self._let_go(before)
        home.discard(name_of(key), self._clock_ms(), self._topic_config(topic).file_delete_delay_ms)
        # Before the copy has the name: no file tells which one of two is current. The checkpoints of a full disk wait.
        home.flush_names()
        if not directory.holds(key):
            directory.files.rename(future.directory, name_of(key))
        directory.files.flush_directory("")
        opened = PartitionLog.open(
            directory.files,
            name_of(key),
            before.settings,
            self._clock_ms(),
            log_start_offset=before.log_start_offset,
            recovery_point=future.log_end_offset,
            clean=True,
        )
        home.forget(key)
        del self._futures[key]
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
        """Finish a move that a crash interrupted between its renames: a future log without a log is complete."""
        if len(self.directories) == 1 or any(one.holds(key) for one in self.directories):
            return
        for directory in self.directories:
            name = directory.future_of(key)
            if name is not None:
                log.info("renaming %s to %s: completing an interrupted move", name, name_of(key))
                directory.files.rename(name, name_of(key))
                return

    # -- settings -----------------------------------------------------------------------------------------------

    def config_changed(self, topic: str, index: int) -> None:
        """Apply the topic's current configuration to an open log."""
        key = (topic, index)
        opened = self._logs.get(key)
        if opened is not None:
            opened.settings = self._log_settings(topic)
            self._cleaner.add(key, opened, self._homes[key])

    def adopt(self, settings: BrokerSettings) -> None:
        """Apply new broker settings to every open log."""
        self._settings = settings
        for topic, index in self._logs:
            self.config_changed(topic, index)

    # -- work from time to time ---------------------------------------------------------------------------------

    def put_high_watermark(self, topic: str, index: int, offset: int) -> None:
        """Set the high watermark of a partition for the next checkpoint."""
        self.home((topic, index)).high_watermarks.put((topic, index), offset)

    def checkpoint(self, high_watermarks: Iterable[tuple[str, int, int]]) -> None:
        """Write these high watermarks, and the other offsets that changed, without a pause."""
        for one in high_watermarks:
            self.put_high_watermark(*one)
        for _ in self.checkpoint_steps():
            pass

    def checkpoint_steps(self) -> Iterator[None]:
        """Write the offsets that changed since the last call; yield after some logs, and after each file.

        A directory that fails does not prevent the checkpoints of others.
        """
        for visited, key in enumerate(list(self._unsaved), 1):
            if key in self._unsaved:  # else it was deleted during a yield
                del self._unsaved[key]
                self._homes[key].take_offsets(key, self._logs[key])
            if visited % LOGS_PER_STEP == 0:
                yield
        for directory in self.directories:
            try:
                for checkpoint in directory.checkpoints:
                    if checkpoint.changed:
                        checkpoint.write()
                        yield
            except OSError as reason:
                log.error("cannot write the checkpoints in %s yet: %s", directory.path, reason)

    def flush_step(self) -> bool:
        """Flush one sealed segment, so that the next start need not scan it; return whether another step may follow.

        A log whose flush fails is retried in the next round.
        """
        if not self._flushing:
            self._flushing = list(reversed(self._unflushed))
        for _ in range(min(len(self._flushing), LOGS_PER_STEP)):
            key = self._flushing.pop()
            opened = self._logs.get(key)
            if opened is None:
                continue  # deleted since the round began
            if not opened.durability.has_sealed_unflushed:
                self._unflushed.pop(key, None)
                continue
            try:
                opened.durability.flush_sealed()
            except KafkaError as reason:
                log.warning("%s", reason)
                opened.changed()
                continue
            self._unsaved[key] = None
            self._flushing.append(key)  # it may have another segment
            break
        return bool(self._flushing)

    def clean_step(self, high_watermark: Callable[[Key], int]) -> bool:
        """Run one step of compaction; return whether another step may follow immediately."""
        return self._cleaner.step(high_watermark, self._futures)

    def close(self) -> None:
        """Close every log; mark directories without errors as clean, so that the next start needs no scan."""
        unclean: set[LogDirectory] = set()
        self._cleaner.close()
        for directory, _, opened, _ in self.open_logs():
            try:
                opened.close()
            except OSError as reason:
                log.error("%s: not closed cleanly: %s", opened.directory, reason)
                unclean.add(directory)
        for directory in self.directories:
            for key, opened in self._logs.items():
                if self._homes[key] is directory:
                    directory.take_offsets(key, opened)
            try:
                directory.write_checkpoints()
                if directory not in unclean:
                    directory.mark_clean()
            except OSError as reason:
                log.error("cannot write the checkpoints: %s", reason)
        for known in (self._logs, self._homes, self._futures, self._unsaved, self._unflushed):
            known.clear()

    def _log_settings(self, topic: str) -> LogSettings:
        return LogSettings.of(self._topic_config(topic), self._settings)
