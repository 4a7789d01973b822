"""The follower's loop towards one leader: fetches, applies the responses, backs off, and reconnects.

One connection and one long poll serve all partitions that follow the same broker. ReplicaState carries the follower's
broker epoch, which identifies the incarnation that has the records (KIP-903).

`FollowerSession` makes the requests, `follower_log` applies the rows of responses, and `Fetcher` adds the connection
and the waiting. A running long poll does not cover partitions that are added meanwhile. Such partitions start in a
separate fetcher, the entrance, until the long poll has ended by itself; the next request names them, too. They are thus
fetched at once, without a new connection or fetch session for the others. A partition that is added during the
entrance's own long poll ends that poll: the entrance follows few partitions and has no session.

Invariant: one fetcher at a time follows a partition, and a response counts only for the fetcher that requested it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.replication.follower_log import (
    Outcome,
    apply_fetched,
    realign,
    refused,
    truncate_without_history,
)
from anabranch.broker.replication.follower_session import FollowerSession, Following, Position, SessionEntry
from anabranch.broker.replication.partition import Partition, Role
from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.protocol.apis.fetch import FetchResponse

log = logging.getLogger(__name__)

FIRST_BACKOFF_MS: Final = 20
POLL_ENDS_MS: Final = 2
POLL_ENDS_TURNS: Final = 8
"""How many checks, `POLL_ENDS_MS` apart, wait for the entrance's long poll to end by itself before it is cancelled for
new partitions. A busy loop does more between two checks.
"""
EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13


class Fetcher:
    """Fetches the partitions that follow one broker."""

    def __init__(
        self,
        leader_id: int,
        settings: BrokerSettings,
        *,
        address: Callable[[], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
        progressed: Callable[[Partition], object],
        died: OnFailure,
        make_entrance: Callable[[], Fetcher] | None = None,
    ) -> None:
        """`make_entrance` creates this fetcher's entrance at its first use; None for an entrance itself."""
        self._leader_id = leader_id
        self._settings = settings
        self._address = address
        self._broker_epoch = broker_epoch
        self._progressed = progressed
        self._loop = asyncio.get_running_loop()
        self._following: dict[Partition, Following] = {}
        self._coming: dict[Partition, Following] = {}
        """Partitions that the present controller request adds."""
        self._postponed: dict[Following, None] = {}
        """Partitions in back-off, which are not requested until they are due."""
        self._make_entrance = make_entrance
        self._entrance: Fetcher | None = None
        self._session = FollowerSession(with_session=make_entrance is not None)
        self._connection: Connection | None = None
        self._polling = False
        self._interrupted = False
        self._interruption: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        kind = "entrance" if make_entrance is None else "fetcher"
        self._task = supervised_task(self._run(), f"{kind}-{settings.node_id}-from-{leader_id}", died)

    def __len__(self) -> int:
        return len(self._following) + len(self._coming) + (0 if self._entrance is None else len(self._entrance))

    def follow(self, partition: Partition) -> None:
        """Fetch this partition under its present leader epoch, from `begin` on."""
        truncate_without_history(partition)
        self._coming[partition] = Following(partition, partition.leader_epoch)

    def begin(self) -> None:
        """Start fetching all added partitions together."""
        if not self._coming:
            return
        if self._polling and self._make_entrance is not None:
            if self._entrance is None:
                self._entrance = self._make_entrance()
            self._entrance.apply_response(self._coming)
        else:
            self.apply_response(self._coming)
        self._coming.clear()

    def apply_response(self, coming: Mapping[Partition, Following]) -> None:
        """Fetch these partitions, too; ends a running long poll."""
        self._ask_for(coming)
        self._changed.set()
        if self._polling and self._interruption is None:
            self._interrupt_in(POLL_ENDS_TURNS)

    def remove_partition(self) -> dict[Partition, Following]:
        """Stop following all partitions, and return them."""
        handed, self._following = self._following, {}
        for following in handed.values():
            self._session.remove(following)
        self._postponed.clear()
        return handed

    def _ask_for(self, coming: Mapping[Partition, Following]) -> None:
        self._following |= coming
        for following in coming.values():
            if following.resume_ms > self._now():
                self._postponed[following] = None
            elif not following.fenced:
                self._session.add(following)

    def _interrupt_in(self, turns: int) -> None:
        if turns:
            self._interruption = self._loop.call_later(POLL_ENDS_MS / 1000, self._interrupt_in, turns - 1)
        elif self._connection is not None:
            self._interrupted = True
            self._connection.abort("more partitions to fetch")

    def forget(self, partition: Partition) -> None:
        """Stop fetching this partition."""
        following = self._following.pop(partition, None)
        if following is not None:
            self._session.remove(following)
            self._postponed.pop(following, None)
        self._coming.pop(partition, None)
        if self._entrance is not None:
            self._entrance.forget(partition)

    async def close(self) -> None:
        """Stop fetching."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._entrance is not None:
            await self._entrance.close()

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    await self._fetch_once()
                    failures = 0
                    continue
                except (ConnectionError, TimeoutError, OSError, KafkaError) as error:
                    self._disconnect()
                    if self._interrupted:
                        self._interrupted = False
                        continue
                    log.info("fetching from broker %d: %s", self._leader_id, error)
                    failures += 1
                await self._wait_for_change(self._backoff_ms(failures))
        except Exception:
            log.error("fetching from broker %d ends, with %s", self._leader_id, list(self._following.values()))
            raise
        finally:
            self._disconnect()

    async def _fetch_once(self) -> None:
        self._changed.clear()
        if self._entrance is not None:
            self._ask_for(self._entrance.remove_partition())
        now = self._now()
        later = self._resume(now)
        if not len(self._session):
            await self._wait_for_change(None if later is None else later - now)
            return
        connection = await self._connect()
        version = version_for(connection, by_id=not self._session.without_id)
        wait_ms = self._settings.replica_fetch_wait_max_ms
        request = self._session.request(
            self._settings,
            by_id=version >= FIRST_VERSION_WITH_TOPIC_IDS,
            broker_epoch=self._broker_epoch(),
            # Do not wait in the poll past the time when a partition in back-off is due.
            max_wait_ms=wait_ms if later is None else min(wait_ms, max(1, int(later - now))),
        )
        self._polling = True
        try:
            response = await connection.call(request, version=version)
        finally:
            self._polling = False
            if self._interruption is not None:
                self._interruption.cancel()
                self._interruption = None
        if not self._session.handle_response(response):
            return
        for following in self._take_all(response, self._session.requested):
            await self._realign(connection, following)

    def _take_all(self, response: FetchResponse, requested: Mapping[Position, SessionEntry]) -> list[Following]:
        """Apply a whole response; return the partitions whose offset is out of the leader's range."""
        out_of_range = []
        for topic in response.responses:
            key: bytes | str = topic.topic_id if any(topic.topic_id) else topic.topic
            for row in topic.partitions:
                one = requested.get((key, row.partition_index))
                if one is None:
                    raise ConnectionError(f"a response with {key!r}-{row.partition_index}, which was not requested")
                following = one.following
                if self._following.get(following.partition) is not following:
                    continue
                match apply_fetched(one, row):
                    case Outcome.GO_ON:
                        following.failures = 0
                        self._progressed(following.partition)
                    case Outcome.BACK_OFF:
                        self._postpone(following)
                    case Outcome.FENCED:
                        following.fenced = True
                        self._session.remove(following)
                    case Outcome.OUT_OF_RANGE:
                        out_of_range.append(following)
        return out_of_range

    async def _realign(self, connection: Connection, following: Following) -> None:
        """Request the bounds of the leader's log, as a replica, and move the offset inside."""
        partition = following.partition
        bounds = []
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            row = await self._list_offset(connection, following, timestamp)
            if row.error_code != ErrorCode.NONE:
                self._postpone(following)
                return
            bounds.append(row.offset)
        if self._following.get(partition) is not following:
            return  # another fetcher follows it by now, and the log may have grown
        if partition.role is Role.FOLLOWER and partition.leader_epoch == following.leader_epoch:
            before = partition.log.log_end_offset
            try:
                realign(partition, *bounds)
            except (OSError, KafkaError) as reason:
                refused(partition, reason)
            if partition.log.log_end_offset == before:
                self._postpone(following)
            else:
                self._progressed(partition)

    async def _list_offset(self, connection: Connection, following: Following, timestamp: int) -> Any:
        partition = ListOffsetsPartition(
            partition_index=following.partition.index, current_leader_epoch=following.leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsTopic(name=following.partition.topic, partitions=[partition])
        response = await connection.call(ListOffsetsRequest(replica_id=self._settings.node_id, topics=[topic]))
        if not response.topics or not response.topics[0].partitions:
            raise ConnectionError(f"a response without {partition!r}, which was requested")
        return response.topics[0].partitions[0]

    def _postpone(self, following: Following) -> None:
        following.failures += 1
        following.resume_ms = self._now() + self._backoff_ms(following.failures)
        if self._following.get(following.partition) is following:
            self._session.remove(following)
            self._postponed[following] = None

    def _resume(self, now: float) -> float | None:
        """Resume partitions whose back-off has ended; return when the next one is due."""
        for following in [one for one in self._postponed if one.resume_ms <= now]:
            del self._postponed[following]
            self._session.add(following)
        return min((one.resume_ms for one in self._postponed), default=None)

    def _backoff_ms(self, failures: int) -> float:
        """Return a back-off that starts short: a new leader usually learns of its role within milliseconds."""
        ceiling: int = self._settings.replica_fetch_backoff_ms
        return min(ceiling, FIRST_BACKOFF_MS << min(failures - 1, 10))

    def _now(self) -> float:
        return self._loop.time() * 1000

    async def _wait_for_change(self, timeout_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            address = self._address()
            if address is None:
                raise ConnectionError(f"broker {self._leader_id} has no known address")
            self._connection = await Connection.open(
                *address,
                client_id=f"broker-{self._settings.node_id}-fetcher",
                request_timeout_ms=30000,
                security=self._settings.security,
                software_name=NODE_SOFTWARE,
            )
        return self._connection

    def _disconnect(self) -> None:
        self._session.restart()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort("the fetcher has stopped")


def version_for(connection: Connection, *, by_id: bool) -> int:
    """Return the newest common version of Fetch, or the last with topic names if a topic has no id."""
    newest = connection.version_for(FetchRequest)
    return newest if by_id else min(newest, FIRST_VERSION_WITH_TOPIC_IDS - 1)
