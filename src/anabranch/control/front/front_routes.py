"""The routes of a front: those of a cluster in one process, answered by the nodes of a cluster of processes.

What such a cluster cannot do is refused with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.admin_routes import ADMIN_ROUTES
from anabranch.control.capabilities import CapabilitiesRow, capabilities_row
from anabranch.control.dashboard_routes import get_dashboard_rows, get_past_dashboard_rows
from anabranch.control.events import EventRow
from anabranch.control.front.front import Front
from anabranch.control.front.front_journal import FRONT_JOURNAL_HANDLERS
from anabranch.control.front.front_records import read_partition, search_topic, topic_named
from anabranch.control.front.front_snapshots import NO_LAUNCHER, SNAPSHOT_HANDLERS
from anabranch.control.front.front_telemetry import TELEMETRY_HANDLERS
from anabranch.control.front.process_actions import NO_LINKS
from anabranch.control.front.process_scene import ProcessScene
from anabranch.control.front.reset import reset
from anabranch.control.record_search import FoundRecordsRow
from anabranch.control.route import WAIT_S, ControlRequest, Done, Route, WaitTimedOut, count_of, timeout_s
from anabranch.control.routes import ROUTES, WaitRow, delay_ms_of, delete_topic, elect_leader, new_topic, offset_ms_of
from anabranch.control.state import ClusterStateRow, GroupRow, NodeRow, TopicRow
from anabranch.control.topic_creation import create_after_deletion
from anabranch.control.topic_routes import (
    NOT_ORDERED,
    RECORDS_MAX,
    PlanRow,
    RecordsRow,
    StoredRow,
    number_of,
    partitions_of,
    plan_row,
    write_each,
)
from anabranch.control.tour_routes import continue_story, end_story, get_tour
from anabranch.control.tour_rows import TourRow
from anabranch.control.wait_conditions import condition
from anabranch.faults.active_rule import RuleRow
from anabranch.faults.rule_json import from_json

SNAPSHOTS: Final = "/v1/state/snapshots"
REFUSED: Final[Mapping[str, str]] = {
    "/v1/zookeeper": "ZooKeeper is a process of its own; read it with zkCli.sh, or any other client of ZooKeeper",
    "/v1/state/snapshots/{name}/file": "a snapshot of processes is a directory: snapshots/NAME in that of the cluster",
    "/v1/state/forks": "a cluster of processes has its ports and directories; start another one",
    "/v1/clock": "processes have the time of their machine; a node's time of day can be shifted, and rules can delay",
}
"""The beginnings of refused paths -> the reason."""
NEED_LINKS: Final = tuple(f"/v1/nodes/{{node}}/session/{what}" for what in ("suspend", "delay", "resume"))
"""The paths that need the nodes' links to ZooKeeper, which only the front of a launcher has."""


async def get_capabilities(on: Front, request: ControlRequest) -> CapabilitiesRow:
    """Get what is possible here."""
    without_launcher = NO_LAUNCHER if on.snapshots is None else ""

    def reason(route: Route) -> str:
        return reason_against(route) or (without_launcher if route.path.startswith(SNAPSHOTS) else "")

    no_links = "" if on.actions.can_suspend else NO_LINKS
    rows = [(one.method, one.path, reason(one) or (no_links if one.path in NEED_LINKS else "")) for one in FRONT_ROUTES]
    return capabilities_row(rows, {"node=suspend": no_links})


async def get_state(on: Front, request: ControlRequest) -> ClusterStateRow:
    """Get the whole state."""
    return await on.state()


async def get_nodes(on: Front, request: ControlRequest) -> list[NodeRow]:
    """Get every node."""
    return await on.nodes()


async def kill_node(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.kill."""
    await on.actions.kill(request.node)
    return await on.node(request.node)


async def stop_node(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.stop."""
    await on.actions.stop(request.node)
    return await on.node(request.node)


async def start_node(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.start; respond when the node has its rules."""
    await on.actions.start(request.node)
    await on.wait_up(request.node)
    return await on.node(request.node)


async def freeze_node(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.freeze."""
    await on.actions.freeze(request.node)
    return await on.node(request.node)


async def thaw_node(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.thaw; respond when the node has the present rules."""
    await on.actions.thaw(request.node)
    await on.catch_up(request.node)
    return await on.node(request.node)


async def shift_clock(on: Front, request: ControlRequest) -> NodeRow:
    """See Front.shift_clock; a node that does not answer gets it when it does."""
    await on.shift_clock(request.node, offset_ms_of(request))
    return await on.node(request.node)


async def expire_session(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.expire_session."""
    await on.actions.expire_session(request.node)
    return await on.node(request.node)


async def suspend_session(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.suspend_session."""
    await on.actions.suspend_session(request.node)
    return await on.node(request.node)


async def delay_session(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.delay_session."""
    await on.actions.delay_session(request.node, delay_ms_of(request))
    return await on.node(request.node)


async def resume_session(on: Front, request: ControlRequest) -> NodeRow:
    """See ProcessActions.resume_session."""
    await on.actions.resume_session(request.node)
    return await on.node(request.node)


async def get_topics(on: Front, request: ControlRequest) -> list[TopicRow]:
    """Get every topic."""
    return (await on.state())["topics"]


async def get_topic(on: Front, request: ControlRequest) -> TopicRow:
    """Get one topic."""
    name = request.words["topic"]
    for row in (await on.state())["topics"]:
        if row["topic"] == name:
            return row
    raise UnknownNode(f"there is no topic {name}")


async def create_topic(on: Front, request: ControlRequest) -> TopicRow:
    """Create a topic, and respond when every partition has a leader."""
    topic = new_topic(request)
    async with on.admin() as admin:
        await create_after_deletion(admin, topic)
    if missing := await on.wait(condition({"topic": topic.name}), WAIT_S):
        raise WaitTimedOut(missing)
    return await get_topic(on, dataclasses.replace(request, words={"topic": topic.name}))


async def get_plan(on: Front, request: ControlRequest) -> PlanRow:
    """Get the plan of a resize."""
    count = partitions_of(request)
    async with on.admin() as admin:
        topic = await topic_named(admin, request.words["topic"])
    if topic.lineage is None:
        raise ActionRefused(NOT_ORDERED.format(topic=topic.name))
    return plan_row(topic.name, topic.lineage, count)


async def resize_topic(on: Front, request: ControlRequest) -> TopicRow:
    """Change a topic's number of partitions, and respond when the resize is published."""
    count = count_of(request.body, "partitions")
    async with on.admin() as admin:
        topic = await topic_named(admin, request.words["topic"])
        await admin.create_partitions(topic.name, count, allow_shrink=True)
    if missing := await on.wait(condition({"topic": topic.name, "partitions": str(count)}), WAIT_S):
        raise WaitTimedOut(missing)
    return await get_topic(on, request)


async def write_records(on: Front, request: ControlRequest) -> list[StoredRow]:
    """Write records as a producer does that keeps keys in order; the response has their offsets."""
    async with on.admin() as admin:
        topic = await topic_named(admin, request.words["topic"])
    return await write_each(on.producer(), topic.name, request.body.get("records"))


async def read_records(on: Front, request: ControlRequest) -> RecordsRow:
    """Read records of one partition up to its high watermark: from an offset, or the last ones."""
    index, limit = number_of(request.query, "partition"), min(number_of(request.query, "limit", 50), RECORDS_MAX)
    first = number_of(request.query, "offset") if "offset" in request.query else None
    async with on.admin() as admin:
        return await read_partition(admin, await topic_named(admin, request.words["topic"]), index, first, limit)


async def search_records(on: Front, request: ControlRequest) -> FoundRecordsRow:
    """Find records of a topic, newest first."""
    async with on.admin() as admin:
        return await search_topic(admin, await topic_named(admin, request.words["topic"]), request.query)


async def get_groups(on: Front, request: ControlRequest) -> list[GroupRow]:
    """Get every group."""
    return (await on.state())["groups"]


async def reset_state(on: Front, request: ControlRequest) -> Done:
    """See `reset`."""
    async with on.exclusively():
        await reset(on)
    return {}


async def begin_story(on: Front, request: ControlRequest) -> TourRow:
    """Begin a story; returns its first step."""
    assert on.guide is not None
    return await on.guide.begin(on, request.words["story"], ProcessScene)


async def wait_for_state(on: Front, request: ControlRequest) -> WaitRow:
    """Respond when a condition holds."""
    words = dict(request.query)
    patience_s = timeout_s(words.pop("timeout", ""))
    if missing := await on.wait(condition(words), patience_s):
        raise WaitTimedOut(f"after {patience_s:g} s {missing}")
    await on.settle()
    return {"newest": on.events.newest}


async def get_events(on: Front, request: ControlRequest) -> list[EventRow]:
    """Get the events after a number, with those that have just happened."""
    await on.settle()
    return [one.row() for one in on.events.after(int(request.query.get("after", "0")))]


async def get_faults(on: Front, request: ControlRequest) -> list[RuleRow]:
    """Get every rule, in order."""
    return await on.rules.rows(removed=request.query.get("removed") == "true")


async def add_fault(on: Front, request: ControlRequest) -> RuleRow:
    """Add a rule."""
    return await on.rules.add(from_json(request.body))


async def get_fault(on: Front, request: ControlRequest) -> RuleRow:
    """Get one rule."""
    return await on.rules.row(request.words["rule"])


async def remove_fault(on: Front, request: ControlRequest) -> RuleRow:
    """Remove a rule."""
    return await on.rules.remove(request.words["rule"])


async def remove_faults(on: Front, request: ControlRequest) -> Done:
    """Remove all rules."""
    await on.rules.clear()
    return {}


async def release_fault(on: Front, request: ControlRequest) -> RuleRow:
    """Release what a rule holds."""
    return await on.rules.release(request.words["rule"])


async def wait_for_hits(on: Front, request: ControlRequest) -> RuleRow:
    """Respond when a rule has reached a number of hits."""
    hits = request.query.get("hits", "1")
    if not hits.isdecimal():
        raise ValueError(f"hits is a number, not {hits!r}")
    return await on.rules.wait_hits(request.words["rule"], int(hits), timeout_s(request.query.get("timeout", "")))


HANDLERS: Final[Mapping[str, Any]] = {
    one.__name__: one
    for one in (
        *(
            get_capabilities,
            get_state,
            get_nodes,
            get_topics,
            get_topic,
            get_plan,
            get_groups,
            reset_state,
            begin_story,
            wait_for_state,
            get_events,
        ),
        *(
            kill_node,
            stop_node,
            start_node,
            freeze_node,
            thaw_node,
            expire_session,
            suspend_session,
            delay_session,
            resume_session,
            shift_clock,
        ),
        *(create_topic, delete_topic, elect_leader, resize_topic, write_records, read_records, search_records),
        *(get_faults, add_fault, get_fault, remove_fault, remove_faults, release_fault, wait_for_hits),
        *(get_dashboard_rows, get_past_dashboard_rows),
        *(get_tour, continue_story, end_story),
        *FRONT_JOURNAL_HANDLERS,
        *SNAPSHOT_HANDLERS,
        *TELEMETRY_HANDLERS,
        *(route.handler for route in ADMIN_ROUTES),
    )
}
"""The name of a route's handler -> the handler that answers it here."""


def reason_against(route: Route) -> str:
    """Why a front refuses a route; empty if it serves the route."""
    return next((why for path, why in REFUSED.items() if route.path.startswith(path)), "")


def _route(route: Route) -> Route:
    if not (reason := reason_against(route)):
        return dataclasses.replace(route, handler=HANDLERS[route.handler.__name__])

    async def refuse(on: Front, request: ControlRequest) -> NoReturn:
        raise ActionRefused(reason)

    refuse.__name__ = route.handler.__name__
    return dataclasses.replace(route, summary=f"Refused in a cluster of processes: {reason}.", handler=refuse)


FRONT_ROUTES: Final[tuple[Route, ...]] = tuple(map(_route, ROUTES))
