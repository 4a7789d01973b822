"""The routes of the control plane, served by `server` and described as OpenAPI.

A handler takes the parameters of the path and the query and a JSON body, and returns the JSON response. It is
independent of HTTP.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NotRequired, TypedDict

from anabranch.clients.topic_admin import NewTopic
from anabranch.clock.process import NO_CLOCK
from anabranch.clock.spans import parse_offset_ms, parse_seconds
from anabranch.control import state
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.admin_routes import ADMIN_ROUTES
from anabranch.control.capabilities import CapabilitiesRow, capabilities_row
from anabranch.control.clock_routes import CLOCK_ROUTES
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.dashboard_routes import SIGHT_ROUTES
from anabranch.control.events import EventRow
from anabranch.control.fault_routes import FAULT_ROUTES
from anabranch.control.journal_routes import JOURNAL_ROUTES, NO_JOURNAL
from anabranch.control.record_search import SEARCH_ROUTES
from anabranch.control.route import TIMEOUT, WAIT_S, ControlRequest, Done, Route, WaitTimedOut, count_of, timeout_s
from anabranch.control.state_routes import STATE_ROUTES
from anabranch.control.telemetry_routes import TELEMETRY_ROUTES
from anabranch.control.topic_creation import create_after_deletion
from anabranch.control.topic_routes import TOPIC_ROUTES
from anabranch.control.tour_routes import TOUR_ROUTES
from anabranch.control.wait_conditions import WORDS, WaitCondition, condition, wait
from anabranch.protocol.topic_partition import TopicPartition


class NewTopicBody(TypedDict):
    """A topic to create."""

    topic: Annotated[str, "the topic's name"]
    partitions: NotRequired[Annotated[int, "the cluster's default if left out"]]
    replicas: NotRequired[Annotated[int, "the replication factor; the cluster's default if left out"]]
    configs: NotRequired[Annotated[dict[str, str | float | bool], "topic configs by their Kafka names"]]


class ElectionBody(TypedDict, total=False):
    """An election; `preferred` if left out."""

    how: Literal["preferred", "unclean"]


class StateQuery(WaitCondition, total=False):
    """A condition, and how long to wait for it."""

    timeout: float


class WaitRow(TypedDict):
    """The condition holds."""

    newest: Annotated[int, "the number of the newest event"]


class EventsQuery(TypedDict, total=False):
    """The events to get."""

    after: Annotated[int, "only events after this number"]


class ClockOffsetBody(TypedDict):
    """How wrong a clock is."""

    offset: Annotated[str | float, 'how far it is ahead: "5m", "-30s", or seconds; 0 ends it']


class SessionDelayBody(TypedDict):
    """How slow a link is."""

    delay: Annotated[str | float, 'by how much each direction is late: "200ms", or seconds; at most 60 s']


async def get_state(on: ControlledCluster, request: ControlRequest) -> state.ClusterStateRow:
    """Get the whole state at one moment."""
    return state.cluster_state(on.cluster)


async def get_nodes(on: ControlledCluster, request: ControlRequest) -> list[state.NodeRow]:
    """Get every node."""
    return state.nodes(on.cluster)


async def kill_node(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.kill."""
    return await on.actions.kill(request.node)


async def stop_node(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.stop."""
    return await on.actions.stop(request.node)


async def start_node(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.start."""
    return await on.actions.start(request.node)


async def freeze_node(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.freeze."""
    return on.actions.freeze(request.node)


async def thaw_node(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.thaw."""
    return on.actions.thaw(request.node)


async def shift_clock(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.shift_clock."""
    return on.actions.shift_clock(request.node, offset_ms_of(request))


def offset_ms_of(request: ControlRequest) -> int:
    """The offset of a clock in the body. Raises ValueError."""
    if request.body.keys() != {"offset"}:
        raise ValueError('send {"offset": "5m"}, or "-30s" for a clock that is behind; 0 ends it')
    return parse_offset_ms(request.body["offset"])


def delay_ms_of(request: ControlRequest) -> int:
    """The delay of a link in the body. Raises ValueError."""
    if request.body.keys() != {"delay"}:
        raise ValueError('send {"delay": "200ms"}; `session/resume` ends it')
    delay_s = parse_seconds(request.body["delay"])
    if not 0.001 <= delay_s <= SESSION_DELAY_MAX_S:
        raise ValueError(f"the delay is 1ms to {SESSION_DELAY_MAX_S:g}s, not {request.body['delay']}; `resume` ends it")
    return round(1000 * delay_s)


async def elect_leader(on: ControlledCluster, request: ControlRequest) -> Done:
    """Elect a leader, as an administrator does; the response says why there is no new one."""
    topic, how = request.words["topic"], request.body.get("how", ELECTIONS[0])
    if how not in ELECTIONS:
        raise ValueError(f"how is {' or '.join(ELECTIONS)}, not {how!r}")
    if not request.words["partition"].isdecimal():
        raise ValueError(f"a partition is a number, not {request.words['partition']!r}")
    partition = TopicPartition(topic, int(request.words["partition"]))
    async with on.admin() as admin:
        outcome = (await admin.elect_leaders([partition], unclean=how == ELECTIONS[1]))[partition]
    if outcome is not None:
        raise ActionRefused(str(outcome))
    return {}


async def expire_session(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.expire_session."""
    return on.actions.expire_session(request.node)


async def suspend_session(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.suspend_session."""
    return on.actions.suspend_session(request.node)


async def delay_session(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.delay_session."""
    return on.actions.delay_session(request.node, delay_ms_of(request))


async def resume_session(on: ControlledCluster, request: ControlRequest) -> state.NodeRow:
    """See Actions.resume_session."""
    return on.actions.resume_session(request.node)


async def get_topics(on: ControlledCluster, request: ControlRequest) -> list[state.TopicRow]:
    """Get every topic."""
    return state.topics(on.cluster)


async def get_topic(on: ControlledCluster, request: ControlRequest) -> state.TopicRow:
    """Get one topic."""
    name = request.words["topic"]
    image = state.newest_image(on.cluster).get(name)
    if image is None:
        raise UnknownNode(f"there is no topic {name}")
    return state.topic_row(on.cluster, image)


async def create_topic(on: ControlledCluster, request: ControlRequest) -> state.TopicRow:
    """Create a topic, and respond when every partition has a leader."""
    topic = new_topic(request)
    async with on.admin() as admin:
        await create_after_deletion(admin, topic)
    if missing := await wait(on.cluster, condition({"topic": topic.name}), WAIT_S):
        raise WaitTimedOut(missing)
    return state.topic_row(on.cluster, state.newest_image(on.cluster)[topic.name])


def new_topic(request: ControlRequest) -> NewTopic:
    """The topic that a request describes. Raises ValueError if it describes none."""
    body = request.body
    name, configs = body.get("topic"), body.get("configs", {})
    if not isinstance(name, str) or not isinstance(configs, dict):
        raise ValueError('a new topic is {"topic": "name", "partitions": 4, "replicas": 3, "configs": {...}}')
    return NewTopic(
        name=name,
        partitions=count_of(body, "partitions", -1),
        replication_factor=count_of(body, "replicas", -1),
        configs={str(key): str(value) for key, value in configs.items()},
    )


async def delete_topic(on: ControlledCluster, request: ControlRequest) -> Done:
    """Delete a topic with its records."""
    async with on.admin() as admin:
        await admin.delete_topics([request.words["topic"]])
    return {}


async def get_groups(on: ControlledCluster, request: ControlRequest) -> list[state.GroupRow]:
    """Get every group."""
    return state.groups(on.cluster)


async def wait_for_state(on: ControlledCluster, request: ControlRequest) -> WaitRow:
    """Respond when a condition holds."""
    words = dict(request.query)
    patience_s = timeout_s(words.pop("timeout", ""))
    if missing := await wait(on.cluster, condition(words), patience_s):
        raise WaitTimedOut(f"after {patience_s:g} s {missing}")
    return {"newest": on.events.newest}


async def get_events(on: ControlledCluster, request: ControlRequest) -> list[EventRow]:
    """Get the events after a number."""
    return [one.row() for one in on.events.after(int(request.query.get("after", "0")))]


async def get_capabilities(on: ControlledCluster, request: ControlRequest) -> CapabilitiesRow:
    """Get what is possible here."""
    no_freeze = "" if on.cluster.can_freeze else NO_CLOCK
    no_journal = "" if on.journal is not None else NO_JOURNAL

    def reason_against(route: Route) -> str:
        if route.path.endswith(("/freeze", "/thaw")):
            return no_freeze
        return no_journal if route.path.startswith("/v1/journal") else ""

    requests = ((route.method, route.path, reason_against(route)) for route in ROUTES)
    return capabilities_row(requests, {"node=freeze": no_freeze})


ELECTIONS: Final = ("preferred", "unclean")
SESSION_DELAY_MAX_S: Final = 60.0
ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/state", "Nodes, topics, groups and transactions at one time.", get_state),
    Route(
        "GET",
        "/v1/capabilities",
        "The requests and rules that are possible here, or why not.",
        get_capabilities,
    ),
    Route("GET", "/v1/nodes", "All nodes, running or not.", get_nodes),
    Route("POST", "/v1/nodes/{node}/kill", "Kill a node abruptly.", kill_node),
    Route("POST", "/v1/nodes/{node}/stop", "Stop a node; its leaderships move first.", stop_node),
    Route("POST", "/v1/nodes/{node}/start", "Start a stopped node.", start_node),
    Route("POST", "/v1/nodes/{node}/freeze", "Freeze a node, like SIGSTOP.", freeze_node),
    Route("POST", "/v1/nodes/{node}/thaw", "Resume a frozen node.", thaw_node),
    Route(
        "POST",
        "/v1/nodes/{node}/clock",
        "Set a node's time of day ahead or behind, as on a machine whose clock is wrong; timers are not affected.",
        shift_clock,
        body=ClockOffsetBody,
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/session/expire",
        "End a node's ZooKeeper session; the node keeps running.",
        expire_session,
    ),
    Route("POST", "/v1/nodes/{node}/session/suspend", "Cut a node off from ZooKeeper.", suspend_session),
    Route(
        "POST",
        "/v1/nodes/{node}/session/delay",
        "Delay what a node sends to ZooKeeper and gets from it, until `resume`.",
        delay_session,
        body=SessionDelayBody,
    ),
    Route("POST", "/v1/nodes/{node}/session/resume", "Reconnect a node to ZooKeeper.", resume_session),
    Route("GET", "/v1/topics", "Every topic, with the log of every replica.", get_topics),
    Route(
        "POST",
        "/v1/topics",
        "Create a topic; respond when it is usable.",
        create_topic,
        body=NewTopicBody,
        waits=True,
    ),
    Route("GET", "/v1/topics/{topic}", "One topic.", get_topic),
    Route("DELETE", "/v1/topics/{topic}", "Delete a topic, with its records.", delete_topic, waits=True),
    Route(
        "POST",
        "/v1/topics/{topic}/partitions/{partition}/elect",
        "Elect the preferred leader, or one that is not in sync, if no other is alive.",
        elect_leader,
        body=ElectionBody,
        waits=True,
    ),
    Route("GET", "/v1/groups", "Every consumer group: members, offsets, lag.", get_groups),
    Route(
        "GET",
        "/v1/wait",
        "Wait until all conditions hold; 408 with the missing ones at the timeout.",
        wait_for_state,
        query=StateQuery,
        checks_query=True,
        query_help={**WORDS, **TIMEOUT},
        waits=True,
    ),
    Route(
        "GET",
        "/v1/events",
        "Events; with Accept: text/event-stream, an endless stream of server-sent events.",
        get_events,
        query=EventsQuery,
    ),
    *TOPIC_ROUTES,
    *SEARCH_ROUTES,
    *ADMIN_ROUTES,
    *SIGHT_ROUTES,
    *TOUR_ROUTES,
    *STATE_ROUTES,
    *CLOCK_ROUTES,
    *FAULT_ROUTES,
    *JOURNAL_ROUTES,
    *TELEMETRY_ROUTES,
)
