"""Checks on the controller's node whether a topic may shrink while stock consumers read it.

When a topic grows, the coordinator holds the gates for stock consumers. When partitions merge it cannot: the merge
target's log continues after the cut, and a stock consumer reads on. `reshard.legacy.consumers.shrink` decides whether
the topic may shrink while stock consumers read it:

    auto      not if coordinators hold gates for this topic
    warn      yes
    refuse    no

Only its coordinator knows a group. So the check asks each leader of a partition of `__consumer_offsets` which of its
groups read the topic, and which partitions of `__consumer_offsets` its response covers. Until all partitions are
covered, the topic does not shrink. Growth needs no check.

Invariant: the plan of a shrink is written only if every coordinator, after the request arrived, has reported no such
group. A group that starts later, even while the plan is written, counts as a reader of the shrunk topic, for which no
order is promised.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.gates.gated_topic import are_held
from anabranch.clients.connection import Connection
from anabranch.controller.model import TopicPartition
from anabranch.controller.resize_requests import is_shrink_request
from anabranch.controller.zk.session import ZkError
from anabranch.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC

if TYPE_CHECKING:
    from anabranch.broker.dispatch.services import Services
    from anabranch.controller.controller import Controller
    from anabranch.controller.state import ClusterState
    from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest

log: Final = logging.getLogger(__name__)

SHRINK: Final = "reshard.legacy.consumers.shrink"
PAUSE_S: Final = 0.1
"""The pause between two attempts, while a coordinator is unavailable."""
SHARE_OF_TIME: Final = 0.5
"""The part of the request's timeout for this check."""
TIMEOUT_MIN_S: Final = 1.0
"""The least time for this check. A timeout of 0 means "respond before the resize completes", not "skip the check"."""
NAMED_MAX: Final = 5


async def groups_blocking_shrink(
    services: Services, controller: Controller, request: CreatePartitionsRequest
) -> dict[str, KafkaError]:
    """The topics of a request that may not shrink: name -> error. Raises NOT_CONTROLLER."""
    found = {}
    for topic in request.topics:
        if is_shrink_request(state_of(controller), topic):
            try:
                await check(services, controller, topic.name, request.timeout_ms)
            except KafkaError as refusal:
                if refusal.code is ErrorCode.NOT_CONTROLLER:
                    raise
                found[topic.name] = refusal
    return found


async def check(services: Services, controller: Controller, topic: str, timeout_ms: int) -> None:
    """Raise POLICY_VIOLATION if the topic may not shrink now, or another KafkaError if the check fails."""
    try:
        config = await services.topic_configs.load(topic, again=True)
    except ZkError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{topic} cannot shrink: {error}") from error
    known = state_of(controller).topics.get(topic)
    policy = config.reshard_legacy_consumers_shrink
    if (
        known is None
        or policy == "warn"
        or (policy == "auto" and not are_held(config, has_generations=known.body.has_generations))
    ):
        return
    why = f"{SHRINK}={policy}"
    try:
        groups = await stock_readers(services, controller, topic, max(timeout_ms * SHARE_OF_TIME / 1000, TIMEOUT_MIN_S))
    except (OSError, TimeoutError) as error:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{topic} cannot shrink: the broker cannot check for stock consumers ({error}; {why}); "
            f"try again, or set {SHRINK}=warn",
        ) from error
    if groups:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic} cannot shrink while stock consumers read it: keys would lose their order for them ({why}; "
            f"{group_names(groups)}). Let them read everything and stop them during the resize, or set {SHRINK}=warn",
        )


async def stock_readers(services: Services, controller: Controller, topic: str, timeout_s: float) -> list[ListedGroup]:
    """List groups whose stock consumers read a topic, with retries. Raises OSError, TimeoutError, NOT_CONTROLLER."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while True:
        left_s = deadline_s - loop.time()
        try:
            return await groups_on(services, state_of(controller), topic, left_s)
        except (OSError, TimeoutError) as error:
            if left_s <= PAUSE_S:
                raise
            log.info("cannot list the groups that read %s yet: %s", topic, error)
        await asyncio.sleep(PAUSE_S)


async def groups_on(services: Services, state: ClusterState, topic: str, timeout_s: float) -> list[ListedGroup]:
    """Query every coordinator once for such groups. Raises OSError if a response is incomplete, and TimeoutError."""
    partitions = is_coordinated(state)
    leaders = sorted(set(partitions.values()))
    outcomes = await asyncio.gather(
        *(ask_broker(services, state, one, topic, timeout_s) for one in leaders), return_exceptions=True
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    answers = [one for one in outcomes if isinstance(one, ListGroupsResponse)]
    missing = partitions.keys() - {index for answer in answers for index in answer.coordinated}
    if missing:
        raise ConnectionError(f"no broker reports the groups of {CONSUMER_OFFSETS_TOPIC}-{min(missing)}")
    return sorted((row for answer in answers for row in answer.groups), key=lambda row: row.group_id)


async def ask_broker(
    services: Services, state: ClusterState, node: int, topic: str, timeout_s: float
) -> ListGroupsResponse:
    """Request from one coordinator its groups whose stock consumers read the topic. Raises OSError, TimeoutError."""
    settings = services.settings
    broker = state.brokers.get(node)
    endpoint = None if broker is None else broker.endpoint(settings.inter_broker_listener)
    if endpoint is None:
        raise ConnectionError(f"broker {node} is not alive")
    timeout_ms = max(1, int(timeout_s * 1000))
    connection = await Connection.open(
        endpoint.host,
        endpoint.port,
        client_id=f"controller-{settings.node_id}",
        request_timeout_ms=timeout_ms,
        connect_timeout_ms=timeout_ms,
        security=settings.security,
        software_name=NODE_SOFTWARE,
    )
    try:
        response: ListGroupsResponse = await connection.call(ListGroupsRequest(readers_of=topic))
    finally:
        await connection.close()
    return response


def is_coordinated(state: ClusterState) -> dict[int, int]:
    """The leader of each partition of `__consumer_offsets`; -1: none."""
    topic = state.topics.get(CONSUMER_OFFSETS_TOPIC)
    found = {}
    for index in () if topic is None else topic.body.assignment:
        committed = state.partitions.get(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
        found[index] = -1 if committed is None else committed.state.leader
    return found


def state_of(controller: Controller) -> ClusterState:
    """The active controller's state. Raises NOT_CONTROLLER."""
    state = controller.state
    if state is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    return state


def group_names(groups: list[ListedGroup]) -> str:
    """Format groups, each with some of its stock consumers, for a message."""
    named = [f"the group {row.group_id}: {row.readers}" for row in groups[:NAMED_MAX]]
    more = len(groups) - len(named)
    return "; ".join([*named, *([f"and {more} more groups"] if more else [])])
