"""Planted bugs of consumer groups; see `planted`."""

from __future__ import annotations

from typing import Any

from anabranch.broker.coordinators.classic_groups import group_machine
from anabranch.broker.coordinators.classic_groups.members import Members
from anabranch.broker.coordinators.consumer_groups import departure
from anabranch.broker.coordinators.consumer_groups.member import STATIC_LEAVE
from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.broker.coordinators.runtime.journal import Journal
from anabranch.broker.handlers import offset_commit
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.consumer_group_membership import ConsumerGroupMembership
from anabranch.clients.consumer.core import ConsumerCore
from anabranch.clients.consumer.lease import NEVER, Lease
from anabranch.protocol.errors import ErrorCode
from tests.sim.planted import Planter, plant


@plant("commits of an old generation accepted", aim="a member of another make commits after it was replaced")
def zombie_commits(planter: Planter) -> None:
    def authorize(group: Any, event: Any, now_ms: int) -> None:
        if event.transactional:
            original(group, event, now_ms)

    original = planter.replace(group_machine, "authorize_commit", authorize)


@plant(
    "a start is committed in a later assignment than it was found for",
    aim="a member's search for its start outlasts its rebalance timeout",
)
def start_of_an_earlier_assignment(planter: Planter) -> None:
    def starts_to_commit(core: Any) -> Any:
        rows = {one: core.assignment.get(one) for one in core._starts}
        core._starts.update(
            {one: (row.begin_number, core._starts[one][1]) for one, row in rows.items() if row is not None}
        )
        return original(core)

    original = planter.replace(ConsumerCore, "_starts_to_commit", starts_to_commit)


@plant(
    "found: a member relies on its own session timeout, whatever its coordinator's is",
    aim="a member sleeps past the session of its coordinator, and believes in a longer one",
)
def own_session_timeout(planter: Planter) -> None:
    def renew_lease(membership: Any, response: Any, sent_at_s: float, *, rebalancing: bool = False) -> None:
        response.session_timeout_ms = 20_000
        original(membership, response, sent_at_s, rebalancing=rebalancing)

    original = planter.replace(ConsumerGroupMembership, "renew_lease", renew_lease)


@plant(
    "found: a replaced static member takes a refused poll of positions for its removal",
    aim="a static member sleeps while another instance replaces it",
)
def removed_by_a_poll(planter: Planter) -> None:
    async def await_positions(session: Any, awaited: Any, **options: Any) -> Any:
        identity = session._identity()
        found = await original(session, awaited, **options)
        if not found and session.membership.lease.until == NEVER:
            session._on_response_code(ErrorCode.UNKNOWN_MEMBER_ID, identity)
        return found

    original = planter.replace(ClassicGroupSession, "await_positions", await_positions)


@plant("commits acknowledged before they are stored")
def commits_not_stored(planter: Planter) -> None:
    async def write(journal: Any, partition: int, batch: Any, *, verification: Any, appended: Any, **_: Any) -> Any:
        replica = journal._replicas.leader_of(journal.topic, partition)
        info = journal._replicas.append_local(
            replica, batch, acks=1, generation=None, origin="coordinator", verification=verification
        )
        if appended is not None:
            appended(info.first_offset)
        return info.first_offset

    planter.replace(Journal, "_write", write)


@plant("a static member relies on its session timeout", aim="a static member sleeps while another instance replaces it")
def static_member_relies_on_its_session(planter: Planter) -> None:
    def agree(lease: Any, *, session_timeout_s: float | None, heartbeat_interval_s: float) -> None:
        lease._static = False
        original(lease, session_timeout_s=session_timeout_s, heartbeat_interval_s=heartbeat_interval_s)

    original = planter.replace(Lease, "agree", agree)


@plant("a static member that returns has lost its assignment", aim="a static member restarts within its session")
def returning_member_without_assignment(planter: Planter) -> None:
    def replace_static(members: Any, old: Any, member_id: str) -> None:
        original(members, old, member_id)
        old.assignment = b""

    original = planter.replace(Members, "replace_static", replace_static)


@plant(
    "a static member that has left keeps its partitions for ever",
    aim="a static member of a KIP-848 group leaves for a while, or for good",
)
def away_for_ever(planter: Planter) -> None:
    def remove_members(decision: Any, members: Any) -> None:
        original(decision, [one for one in members if one.epoch != STATIC_LEAVE])

    original = planter.replace(departure, "remove_members", remove_members)


@plant(
    "found: a broker whose session has expired goes on coordinating groups",
    aim="a coordinator sleeps past its session, and a member reaches no other broker",
)
def coordinator_without_session(planter: Planter) -> None:
    def step_down(coordinator: Any) -> None:
        """Go on."""

    planter.replace(GroupCoordinator, "step_down", step_down)


@plant(
    "a commit goes on after its connection is lost",
    aim="a connection is lost while a commit on it is encoded",
)
def commit_of_a_lost_connection(planter: Planter) -> None:
    def refuse_if_lost(ctx: Any) -> None:
        """Go on."""

    planter.replace(offset_commit, "refuse_if_lost", refuse_if_lost)
