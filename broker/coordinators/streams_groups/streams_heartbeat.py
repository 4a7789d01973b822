"""StreamsGroupHeartbeat: a member joins, stays, reports revoked tasks, or leaves.

Null in a heartbeat means unchanged. The response has all of a member's tasks when it joins, when they have just
changed, and when the member reports other tasks: it may have lost a response, which Kafka 4.2 does not repeat. The
response has one status per problem. The decision lists missing topics; once they exist, the group gets a new epoch and
its tasks are assigned.

Source: KIP-1071; Kafka's GroupMetadataManager (streamsGroupHeartbeat, streamsGroupLeave), 4.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH, LEAVE_EPOCH, UNREVOKED
from anabranch.broker.coordinators.consumer_groups.reconciliation import reconcile
from anabranch.broker.coordinators.consumer_groups.subscribed_topics import existing, metadata_hash
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
from anabranch.broker.coordinators.streams_groups import configured_topology as topologies
from anabranch.broker.coordinators.streams_groups import sticky_task_assignor, tasks
from anabranch.broker.coordinators.streams_groups.configured_topology import ConfiguredTopology
from anabranch.broker.coordinators.streams_groups.streams_admission import check_epoch, check_tasks
from anabranch.broker.coordinators.streams_groups.streams_decision import StreamsAnswer, StreamsDecision
from anabranch.broker.coordinators.streams_groups.streams_group import NOT_VALIDATED, StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_member import StreamsMember
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings
from anabranch.broker.coordinators.streams_groups.tasks import NO_TASKS, Tasks
from anabranch.protocol import streams_group_records as records
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record

FIRST_EPOCH: Final = 2
"""The first epoch of a group; members without an assignment yet are at epoch 1."""
WAITING_EPOCH: Final = 1
WHOLE_GROUP: Final = ""
"""The key of the timer with which a group waits for more members."""


# --- joining and staying -----------------------------------------------------------------------------------------


def heartbeat(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    sender: Sender,
    *,
    topics: TopicsView,
    settings: StreamsSettings,
    now_ms: int,
) -> StreamsDecision:
    """Decide on a valid request. Raises KafkaError."""
    decision = StreamsDecision(group, topics, settings, now_ms)
    if request.shutdown_application:
        decision.then.append(lambda: _shut_down(group, request.member_id))
    if request.member_epoch == LEAVE_EPOCH:
        remove(decision, [group.member(request.member_id)])
        decision.answer = StreamsAnswer(member_id=request.member_id, epoch=LEAVE_EPOCH)
    else:
        _update_member(decision, request, sender)
    return decision


def _shut_down(group: StreamsGroup, member_id: str) -> None:
    if group.members:  # only current members are to shut down
        group.shutdown_by = member_id


def _update_member(decision: StreamsDecision, request: StreamsGroupHeartbeatRequest, sender: Sender) -> None:
    group, settings, member_id = decision.group, decision.settings, request.member_id
    joins, owned = request.member_epoch == JOIN_EPOCH, _owned_tasks(request)
    if joins and member_id not in group.members and len(group.members) >= settings.size_max:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group may have {settings.size_max} members")
    before = group.members.get(member_id) or (StreamsMember(member_id=member_id) if joins else group.member(member_id))
    check_epoch(before, request.member_epoch, owned)
    after = _with_request(before, request, sender)
    if after is not before:
        key = records.StreamsGroupMemberMetadataKey(group_id=group.group_id, member_id=member_id)
        decision.write(key, after.metadata())
    topology = _topology(decision, request)
    configured, hashed = _configure(decision, topology)
    validated = topology.epoch if configured.ready else NOT_VALIDATED
    if configured.ready:
        check_tasks(owned, before, configured)
    epoch = group.epoch
    if (
        after is not before
        or hashed != group.metadata_hash
        or validated != group.validated_topology_epoch
        or settings.assignment_configs != group.assignment_configs
    ):
        epoch = epoch + 1 if epoch else FIRST_EPOCH
        decision.write_epoch(epoch, hashed, validated, settings.assignment_configs)
    waits = _waits_for_more(decision)
    target_epoch, target = _target(decision, after, epoch, configured, waits=waits)
    settled = _reconcile(decision, after, target_epoch, target, owned)
    decision.set_timer(member_id, Timer.SESSION, settings.session_timeout_ms)
    decision.missing = configured.missing
    moved = joins or settled.assigned != before.assigned
    endpoint_epoch = group.endpoint_epoch
    if moved and after.endpoint is not None and group.epoch:  # in a new group no endpoint had tasks before
        decision.then.append(group.endpoints_moved)
        endpoint_epoch += 1
    decision.answer = StreamsAnswer(
        member_id=member_id,
        epoch=settled.epoch,
        interval_ms=settings.heartbeat_interval_ms,
        assigned=settled.assigned if moved or owned not in (None, settled.assigned) else None,
        status=tuple(_statuses(group, request, after, topology, configured, waits=waits and epoch > target_epoch)),
        endpoint_epoch=endpoint_epoch,
        include_endpoints=endpoint_epoch != request.endpoint_information_epoch,
    )


def _owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return tasks.of_rows(request.active_tasks, request.standby_tasks, request.warmup_tasks)


def _with_request(before: StreamsMember, request: StreamsGroupHeartbeatRequest, sender: Sender) -> StreamsMember:
    """Return the member with the changes of the request; the same object if there are none."""
    new: dict[str, object] = {"client_id": sender.client_id, "client_host": sender.client_host}
    if request.rack_id is not None:
        new["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        new["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        new["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        new["process_id"] = request.process_id
    if request.user_endpoint is not None:
        new["endpoint"] = request.user_endpoint.host, request.user_endpoint.port
    if request.client_tags is not None:
        new["client_tags"] = tuple(sorted((one.key, one.value) for one in request.client_tags))
    if before.epoch != JOIN_EPOCH and all(getattr(before, name) == content for name, content in new.items()):
        return before
    return dataclasses.replace(before, **new)  # type: ignore[arg-type]


def _topology(decision: StreamsDecision, request: StreamsGroupHeartbeatRequest) -> records.StreamsGroupTopologyValue:
    """Return the group's topology, set by its first member. Raises INVALID_REQUEST for a different one."""
    group, sent = decision.group, request.topology
    known = group.topology
    if known is None:
        if sent is None:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the group has no topology: the member must rejoin")
        made = records.StreamsGroupTopologyValue(epoch=sent.epoch, subtopologies=sent.subtopologies)
        decision.write(records.StreamsGroupTopologyKey(group_id=group.group_id), made)
        return made
    if sent is None or known.epoch > sent.epoch:
        return known
    if not topologies.is_same_topology(
        known, records.StreamsGroupTopologyValue(epoch=sent.epoch, subtopologies=sent.subtopologies)
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the group has another topology; topology updates are not supported yet"
        )
    return known


def _configure(
    decision: StreamsDecision, topology: records.StreamsGroupTopologyValue
) -> tuple[ConfiguredTopology, int]:
    """Return the configured topology and the hash of its topics, recomputed if the cluster's topics changed."""
    group, image = decision.group, decision.topics.image
    if group.configured is not None and group.metadata_seen is image:
        return group.configured, group.metadata_hash
    names = topologies.required_topics(topology.subtopologies)
    hashed = metadata_hash(existing(names, decision.topics.find).values())
    configured = topologies.configure(topology, decision.topics.find)
    decision.then.append(lambda: group.configure(configured, image))
    return configured, hashed


def _waits_for_more(decision: StreamsDecision) -> bool:
    """Return whether the group is in its initial delay, and start the delay for the first member."""
    group, delay_ms = decision.group, decision.settings.initial_delay_ms
    if group.timers.due(WHOLE_GROUP, Timer.INITIAL) is not None:
        return True
    if group.members or delay_ms <= 0:
        return False
    decision.set_timer(WHOLE_GROUP, Timer.INITIAL, delay_ms)
    return True


def _target(
    decision: StreamsDecision, member: StreamsMember, epoch: int, configured: ConfiguredTopology, *, waits: bool
) -> tuple[int, Tasks]:
    """Return the assignment epoch and the member's target; recompute all targets if the group epoch is newer."""
    group = decision.group
    if epoch <= group.assignment_epoch:
        return group.assignment_epoch, group.target(member.member_id)
    if waits:
        return max(WAITING_EPOCH, group.assignment_epoch), NO_TASKS
    members = {**group.members, member.member_id: member}
    computed = targets_of(group, members, configured, decision.settings.standbys)
    for one in members:
        if group.targets.get(one) != computed[one]:
            decision.write_target(one, computed[one])
    decision.write(
        records.StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id),
        records.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )
    return epoch, computed[member.member_id]


def targets_of(
    group: StreamsGroup, members: Mapping[str, StreamsMember], configured: ConfiguredTopology, standbys: int
) -> dict[str, Tasks]:
    """Compute each member's target; no tasks while topics are missing."""
    if not configured.ready:
        return dict.fromkeys(members, NO_TASKS)
    spec = {one: (member.process_id, group.target(one)) for one, member in members.items()}
    return sticky_task_assignor.assign(spec, configured.subtopologies, standbys)


def _reconcile(
    decision: StreamsDecision, member: StreamsMember, target_epoch: int, target: Tasks, owned: Tasks | None
) -> StreamsMember:
    if member.is_reconciled(target_epoch):
        return member
    free_of = decision.group.free_for(member.process_id)
    after = reconcile(member, target=target, target_epoch=target_epoch, owned=owned, free_of=free_of)
    if after is member:
        return member
    after = after.with_task_epochs(member)
    key = records.StreamsGroupCurrentMemberAssignmentKey(group_id=decision.group.group_id, member_id=member.member_id)
    decision.write(key, after.current())
    if after.state is UNREVOKED:
        decision.set_timer(member.member_id, Timer.REBALANCE, after.rebalance_timeout_ms)
    else:
        decision.cancel_timer(member.member_id, Timer.REBALANCE)
    return after


def _statuses(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    member: StreamsMember,
    topology: records.StreamsGroupTopologyValue,
    configured: ConfiguredTopology,
    *,
    waits: bool,
) -> Iterable[tuple[int, str]]:
    if member.topology_epoch < topology.epoch:
        old, new = member.topology_epoch, topology.epoch
        yield topologies.STALE_TOPOLOGY, f"the member has the topology of epoch {old}, the group that of {new}"
    if waits:
        yield topologies.ASSIGNMENT_DELAYED, "the initial rebalance delay is not over"
    if configured.status is not None:
        yield configured.status, configured.detail
    shutdown_by = request.member_id if request.shutdown_application else group.shutdown_by
    if shutdown_by is not None:
        yield topologies.SHUTDOWN_APPLICATION, f"member {shutdown_by} requested the shutdown of the application"


# --- removal, timeouts and deletion ------------------------------------------------------------------------------


def remove(decision: StreamsDecision, members: Iterable[StreamsMember]) -> None:
    """Remove members; the next heartbeat assigns their tasks."""
    group = decision.group
    for member_id in sorted(member.member_id for member in members):
        decision.delete_member(member_id)
    decision.write_epoch(group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)


def fence(
    group: StreamsGroup, *, topics: TopicsView, settings: StreamsSettings, now_ms: int
) -> tuple[StreamsDecision, list[tuple[StreamsMember, Timer]]]:
    """Remove the members whose timers have expired; return them with the timers. Ends an expired initial delay."""
    due = group.timers.pop_due(now_ms)
    decision = StreamsDecision(group, topics, settings, now_ms)
    if (WHOLE_GROUP, Timer.INITIAL) in due:
        group.timers.cancel(WHOLE_GROUP, Timer.INITIAL)
    over = [(group.members[one], timer) for one, timer in due if one in group.members]
    if over:
        remove(decision, {member.member_id: member for member, _ in over}.values())
    return decision, over


def restart_session_timers(group: StreamsGroup, settings: StreamsSettings, now_ms: int) -> None:
    """Restart the timers of a group that was read from the journal."""
    for member in group.members.values():
        group.timers.set(member.member_id, Timer.SESSION, now_ms + settings.session_timeout_ms)
        if member.state is UNREVOKED:
            group.timers.set(member.member_id, Timer.REBALANCE, now_ms + member.rebalance_timeout_ms)


def tombstones(group: StreamsGroup) -> list[Record]:
    """Return the records that delete a group."""
    decision = StreamsDecision(group)
    for member_id in sorted(group.members.keys() | group.targets.keys()):
        decision.delete_member(member_id)
    group_id = group.group_id
    decision.write(records.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    decision.write(records.StreamsGroupTopologyKey(group_id=group_id), None)
    decision.write(records.StreamsGroupMetadataKey(group_id=group_id), None)
    return decision.records
