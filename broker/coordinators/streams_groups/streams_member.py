"""One member of a streams group, a thread of an application instance: its metadata and reconciliation state.

A member is immutable and replaced as a whole. As in KIP-848 groups, two journal records hold its two halves. An active
task keeps the epoch in which its member got it: commits with that epoch or a later one are valid. Source: KIP-1071;
Kafka's StreamsGroupMember of 4.2.
"""

from __future__ import annotations

import dataclasses

from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH, LEAVE_EPOCH, STABLE, UNKNOWN, MemberState
from anabranch.broker.coordinators.streams_groups import tasks
from anabranch.broker.coordinators.streams_groups.tasks import ACTIVE, NO_TASKS, STANDBY, WARMUP, Since, Tasks
from anabranch.protocol import streams_group_records as records
from anabranch.protocol.apis.streams_group_heartbeat import Endpoint, KeyValue
from anabranch.protocol.values import value


@value(kw_only=True)
class StreamsMember:
    """One member of a streams group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    """The instance that it is a thread of."""
    endpoint: tuple[str, int] | None = None
    """The instance's endpoint for queries of its state."""
    client_tags: tuple[tuple[str, str], ...] = ()

    state: MemberState = STABLE
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: Tasks = dataclasses.field(default_factory=dict)
    revoking: Tasks = dataclasses.field(default_factory=dict)
    """The tasks to revoke, until the member reports that it has."""
    since: Since = dataclasses.field(default_factory=dict)

    def is_reconciled(self, target_epoch: int) -> bool:
        """Return whether the member has reached the target of this epoch."""
        return self.state is STABLE and self.epoch == target_epoch

    def with_task_epochs(self, before: StreamsMember) -> StreamsMember:
        """Return the member with the epochs of its active tasks, given the member before this step."""
        known = before.since
        since = {
            (name, index): known.get((name, index), self.epoch)
            for one in (self.assigned, self.revoking)
            for role, name, index in tasks.each(one)
            if role is ACTIVE
        }
        return dataclasses.replace(self, since=since)

    def metadata(self) -> records.StreamsGroupMemberMetadataValue:
        """Return the value of the member's metadata record."""
        return records.StreamsGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if self.endpoint is None else Endpoint(host=self.endpoint[0], port=self.endpoint[1]),
            client_tags=[KeyValue(key=key, value=content) for key, content in self.client_tags],
        )

    def with_metadata(self, content: records.StreamsGroupMemberMetadataValue) -> StreamsMember:
        """Return the member with the metadata of a record."""
        endpoint = content.user_endpoint
        return dataclasses.replace(
            self,
            rack_id=content.rack_id,
            client_id=content.client_id,
            client_host=content.client_host,
            rebalance_timeout_ms=content.rebalance_timeout_ms,
            topology_epoch=content.topology_epoch,
            process_id=content.process_id,
            endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            client_tags=tuple((one.key, one.value) for one in content.client_tags),
        )

    def current(self) -> records.StreamsGroupCurrentMemberAssignmentValue:
        """Return the value of the member's current assignment record."""
        return records.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=tasks.to_rows(self.assigned, ACTIVE, self.since),
            standby_tasks=tasks.to_rows(self.assigned, STANDBY),
            warmup_tasks=tasks.to_rows(self.assigned, WARMUP),
            active_tasks_pending_revocation=tasks.to_rows(self.revoking, ACTIVE, self.since),
            standby_tasks_pending_revocation=tasks.to_rows(self.revoking, STANDBY),
            warmup_tasks_pending_revocation=tasks.to_rows(self.revoking, WARMUP),
        )

    def with_current(self, content: records.StreamsGroupCurrentMemberAssignmentValue | None) -> StreamsMember:
        """Return the member with the current assignment of a record; None: never reconciled, or has to rejoin."""
        if content is None:
            return dataclasses.replace(
                self,
                state=STABLE,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                assigned=NO_TASKS,
                revoking=NO_TASKS,
                since={},
            )
        known = content.state in MemberState.__members__.values()
        return dataclasses.replace(
            self,
            state=MemberState(content.state) if known else UNKNOWN,
            epoch=content.member_epoch,
            previous_epoch=content.previous_member_epoch,
            assigned=tasks.of_rows(content.active_tasks, content.standby_tasks, content.warmup_tasks),
            revoking=tasks.of_rows(
                content.active_tasks_pending_revocation,
                content.standby_tasks_pending_revocation,
                content.warmup_tasks_pending_revocation,
            ),
            since=tasks.since_of(content.active_tasks, content.active_tasks_pending_revocation),
        )
