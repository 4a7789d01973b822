"""A controller candidate of one node: it takes part in elections, and serves requests while it is controller.

    follower --/controller is free--> candidate --won--> active --deposed, or a bug--> follower
                                                                  --session over--> stopped

A controller belongs to one ZooKeeper session. While the session is suspended, the controller cannot know whether its
tenure is over, so it decides nothing and answers NOT_CONTROLLER until it is connected again.
When the session expires the tenure ends at once, and the node creates a new controller with its next session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.controller import describe, events
from anabranch.controller.candidacy import Candidacy, ControllerTenure, NoLongerController, retry_connection_loss
from anabranch.controller.runner import ControllerEvent, Runner
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.zk import paths
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.producer_id_blocks import claim_block
from anabranch.controller.zk.session import NodeExists, SessionEvent, SessionExpired, ZkError, ZkSession
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from anabranch.protocol.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from anabranch.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from anabranch.protocol.apis.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.controller.state import ClusterState
    from anabranch.controller.zk.znodes import ProducerIdBlock
    from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
    from anabranch.protocol.apis.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from anabranch.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from anabranch.protocol.apis.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from anabranch.protocol.apis.update_features import UpdateFeaturesRequest

__all__ = ["Controller", "ControllerEvent", "ControllerSettings"]

T = TypeVar("T")

log = logging.getLogger(__name__)

ELECTION_PAUSE_S = 1.0
"""The pause after an election that failed for another reason than a lost connection or another winner."""
CRASH_STATUS = 137
"""Exit status of a killed process; an injected crash uses it as well."""


class Controller:
    """A controller candidate under one ZooKeeper session."""

    def __init__(
        self,
        session: ZkSession,
        settings: ControllerSettings,
        *,
        rng: random.Random,
        listener: Callable[[ControllerEvent], None] | None = None,
        failpoint: Callable[[str], None] | None = None,
        in_turn: Callable[[], bool] | None = None,
    ) -> None:
        """Create a candidate.

        `failpoint` is called for every completed step of `failpoints.STEPS`; by default `crash_at` acts on it.

        `in_turn` tells whether the controller may stop between any two partitions of a step, which are then written one
        by one; by default it may wherever a callback receives steps.
        """
        self._session = session
        self._settings = settings
        self._rng = rng
        self._listener = listener
        self._failpoint = failpoint or (self._crash if settings.crash_at else None)
        self._in_turn = in_turn or (lambda: self._failpoint is not None)
        self._runner: Runner | None = None
        self._term: ControllerTenure | None = None
        self._task: asyncio.Task[None] | None = None
        self._expired = False
        self._in_touch = asyncio.Event()
        self._in_touch.set()

    @property
    def active(self) -> bool:
        """Whether this controller is elected, has read the state, and is connected to ZooKeeper."""
        return self._runner is not None and self._runner.loaded and self._in_touch.is_set()

    @property
    def epoch(self) -> int:
        """The controller epoch of the current or last tenure; 0 before the first."""
        return 0 if self._term is None else self._term.epoch

    @property
    def state(self) -> ClusterState | None:
        """The active controller's state, read-only; None while this controller is not active."""
        return self._runner.state if self._runner is not None and self.active else None

    async def start(self) -> None:
        """Start as a candidate; returns before any election."""
        for path in (paths.BROKER_IDS, paths.TOPICS, paths.TOPIC_CONFIGS, paths.DELETE_TOPICS):
            with contextlib.suppress(NodeExists):
                await retry_connection_loss(lambda path=path: self._session.create(path, make_parents=True))  # type: ignore[misc]
        self._session.on_session(self._on_session)
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Resign, if elected, and stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def adopt(self, settings: ControllerSettings) -> None:
        """Apply changed settings to the current tenure."""
        self._settings = settings
        if self._runner is not None:
            self._runner.adopt(settings)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Handle AlterPartition (KIP-497). Like every request here, raises NOT_CONTROLLER."""
        answer = await self._ask(lambda token: events.AlterPartitionRequested(token, request))
        return answer or AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move the leaderships of a broker that shuts down; the response names those that remain."""
        answer = await self._ask(lambda token: events.ShutdownRequested(token, request))
        return answer or ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER, remaining_partitions=[])

    async def create_partitions(
        self, request: CreatePartitionsRequest, barred: Mapping[str, KafkaError] | None = None
    ) -> CreatePartitionsResponse:
        """Grow or shrink topics, except those that are `barred` from shrinking.

        Responds when the resizes are published or the request times out.
        """
        answer = await self._ask(lambda token: events.PartitionsRequested(token, request, barred or {}))
        return answer or CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.NOT_CONTROLLER,
                    error_message="This is not the correct controller for this cluster.",
                )
                for topic in request.topics
            ]
        )

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect preferred or unclean leaders; responds when the elections are written."""
        answer: ElectLeadersResponse | None = await self._ask(lambda token: events.ElectionRequested(token, request))
        return in_office(answer)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Start or cancel reassignments; responds when they have started."""
        answer: AlterPartitionReassignmentsResponse | None = await self._ask(
            lambda token: events.ReassignmentRequested(token, request)
        )
        return in_office(answer)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """List the replicas that are being moved."""
        answer: ListPartitionReassignmentsResponse | None = await self._ask(
            lambda token: events.ReassignmentsListed(token, request)
        )
        return in_office(answer)

    async def update_features(
        self, request: UpdateFeaturesRequest, *, together: bool = False
    ) -> UpdateFeaturesResponse:
        """Finalize or withdraw feature levels; responds when they are written.

        With `together`, all updates succeed or, with a KafkaError, none.
        """
        outcome: dict[str, tuple[ErrorCode, str]] | KafkaError | None = await self._ask(
            lambda token: events.FeaturesRequested(token, request, together)
        )
        if isinstance(outcome, KafkaError):
            raise outcome
        return UpdateFeaturesResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            results=[
                UpdatableFeatureResult(feature=name, error_code=code, error_message=message or None)
                for name, (code, message) in in_office(outcome).items()
            ],
        )

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> ProducerIdBlock:
        """Allocate a block of producer ids for a broker. Raises KafkaError."""
        runner = self._runner
        if runner is None or not self.active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        broker = runner.state.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
        if broker.epoch != request.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"{request.broker_epoch}, current is {broker.epoch}")
        try:
            writes = runner.writes
            return await claim_block(
                self._session, request.broker_id, lambda ops: writes.commit("allocate-producer-ids", ops)
            )
        except NoLongerController as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None
        except ZkError as error:
            # Kafka answers UNKNOWN_SERVER_ERROR; this is no bug, though, and the broker may find another controller.
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"ZooKeeper cannot be reached: {error}") from None

    def describe(self) -> str:
        """Describe the controller's state as text."""
        if self._runner is None:
            return f"controller {self._settings.node_id}: not active"
        return describe.state(self._runner.state)

    async def _ask(self, make_event: Callable[[int], events.Event]) -> Any:
        """Return the active runner's response; None if this controller is not active or its tenure ends first."""
        runner = self._runner
        if runner is None or not self.active:
            return None
        try:
            return await runner.ask(make_event)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the caller itself was cancelled; otherwise the tenure ended
            return None

    async def _run(self) -> None:
        """Alternate between candidate and controller until the session ends."""
        candidacy = Candidacy(self._session, self._settings, self._now_ms)
        with contextlib.suppress(SessionExpired):
            while not self._expired:
                try:
                    await self._stand(candidacy)
                except (ZkError, MalformedZnode) as error:
                    if isinstance(error, SessionExpired):
                        raise
                    log.error("controller %d cannot be elected, and tries again: %s", self._settings.node_id, error)
                    await asyncio.sleep(ELECTION_PAUSE_S)

    async def _stand(self, candidacy: Candidacy) -> None:
        """Take part in one election, and lead if it is won; or wait for the end of another node's tenure."""
        changed = asyncio.Event()
        holder = await candidacy.holder(lambda _: changed.set())
        if holder is not None and holder.ephemeral_owner == self._session.session_id:
            await candidacy.vacate()  # left behind by a tenure that ended
            self._reached("vacate")
        elif holder is not None:
            await changed.wait()
        elif (term := await candidacy.elect()) is not None:
            await self._lead(candidacy, term)

    async def _lead(self, candidacy: Candidacy, term: ControllerTenure) -> None:
        self._term = term
        self._reached("elect-controller")
        runner = Runner(
            self._session,
            self._settings,
            term,
            candidacy,
            self._rng,
            self._listener,
            self._failpoint,
            in_turn=self._in_turn,
            in_touch=self._in_touch,
        )
        self._runner = runner
        try:
            await runner.run()
        except NoLongerController as error:
            log.info("controller %d: %s", self._settings.node_id, error)
        except (SessionExpired, asyncio.CancelledError):
            raise
        except Exception:
            # A bug in this code. The next tenure reads all state again, as another node would.
            log.exception("controller %d ends its tenure\n%s", self._settings.node_id, describe.state(runner.state))
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        finally:
            self._runner = None
            if self._in_touch.is_set():  # otherwise no server is reachable, and the session's end has the same effect
                await candidacy.resign(term)
                self._reached("resign")

    def _on_session(self, event: SessionEvent) -> None:
        """Suspend decisions with the session, as another node may be elected. End the tenure when it expires."""
        if event is SessionEvent.SUSPENDED:
            self._in_touch.clear()
        elif event is SessionEvent.CONNECTED:
            self._in_touch.set()
        else:
            self._expired = True
            self._in_touch.clear()
            if self._task is not None:
                self._task.cancel()

    def _reached(self, step: str) -> None:
        if self._failpoint is not None:
            self._failpoint(step)

    def _crash(self, step: str) -> None:
        if step == self._settings.crash_at:
            log.error("controller %d crashes at failpoint %s", self._settings.node_id, step)
            os._exit(CRASH_STATUS)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


def in_office(answer: T | None) -> T:
    """Return an active controller's response; raise KafkaError(NOT_CONTROLLER) for None."""
    if answer is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    return answer
