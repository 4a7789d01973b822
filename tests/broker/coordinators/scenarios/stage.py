"""The phrases of a group's scenarios, which `README.md` lists, and what each one does.

The group, its offsets and its watches are real. Clients (`stage_client`) remember the last response; the journal
(`stage_journal`) is a list of records in their real encoding.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, assert_never

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import (
    Answer,
    Close,
    Delete,
    Effect,
    Event,
    Heartbeat,
    Join,
    Leave,
    Observe,
    Persist,
    Persisted,
    RebalanceRequired,
    Sync,
    Tick,
    Verdict,
)
from anabranch.broker.coordinators.classic_groups.group_machine import apply
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.groups.group_shards import GroupEntry, Shard
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, records_of, tombstones_of
from anabranch.broker.coordinators.offsets.consumer_positions import refusal
from anabranch.broker.coordinators.runtime.journal import TransactionEnd
from anabranch.clients.group_offsets import position_request
from anabranch.protocol.apis.join_group import JoinGroupResponse
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import (
    GroupMetadataKey,
    encode_group,
    encode_key,
)
from anabranch.protocol.records.batch import NO_PRODUCER_ID
from anabranch.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.scenarios import rendering
from tests.broker.coordinators.scenarios.stage_client import GROUP, Client, Ticket
from tests.broker.coordinators.scenarios.stage_journal import StageJournal
from tests.scenario_text import NotUnderstood, Stage, phrase

FILES: Final = sorted(Path(__file__).parent.glob("*.txt"))
JOIN_VERSION: Final = 9
LEAVE_VERSION: Final = 5
START_MS: Final = 1_000_000


class GroupStage(Stage):
    """One group, its clients, its coordinator and that one's journal."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.rng = random.Random(7)
        self.limits: dict[str, int] = {}
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        """Member id -> client and number."""
        self.journal = StageJournal()
        self._slot: GroupEntry | None = None

    # --- what is prepared ----------------------------------------------------------------------------------------

    @phrase("setting NAME VALUE")
    def setting(self, name: str, value: str) -> None:
        """A limit of `GroupLimits`, for the coordinator that begins with the first event."""
        if name not in GroupLimits.__dataclass_fields__:
            raise NotUnderstood(f"{name} is none of {list(GroupLimits.__dataclass_fields__)}")
        self.limits[name] = int(value)

    @phrase("CLIENT is instance INSTANCE")
    def static(self, client: str, instance: str) -> None:
        """A static member (KIP-345)."""
        self.client(client).instance_id = instance

    @phrase("CLIENT offers PROTOCOLS")
    def offers(self, client: str, protocols: str) -> None:
        """The assignors that a client can use, most wanted first."""
        self.client(client).protocols = tuple(protocols.split(","))

    @phrase("the session of CLIENT is MS ms")
    def session(self, client: str, session_ms: str) -> None:
        """After how much silence the client is given up."""
        self.client(client).session_ms = int(session_ms)

    @phrase("the journal is slow")
    def journal_is_slow(self) -> None:
        """Records wait until the scenario says what becomes of them."""
        self.journal.slow = True

    # --- what clients do -----------------------------------------------------------------------------------------

    @phrase("CLIENT joins")
    def joins(self, client: str) -> None:
        """JoinGroup. A client that is told its member id comes back with it at once."""
        one = self.client(client)
        told = one.member_id
        self._join(one)
        if one.member_id != told and one.generation == -1 and one.member_id in self.group.members.pending:
            self._join(one)

    @phrase("CLIENT asks for a member id")
    def asks_for_id(self, client: str) -> None:
        """JoinGroup, whose answer is an id; the client does not come back with it yet."""
        self._join(self.client(client))

    @phrase("CLIENT restarts")
    def restarts(self, client: str) -> None:
        """The application is started again: it knows neither its member id nor its generation."""
        one = self.client(client)
        one.member_id, one.generation = "", -1

    @phrase("CLIENT syncs")
    def syncs(self, client: str) -> None:
        """SyncGroup of a follower."""
        self._sync(self.client(client), {})

    @phrase("CLIENT assigns REST")
    def assigns(self, client: str, rest: str) -> None:
        """SyncGroup of the leader: `ann=orders-0,orders-1 bob=orders-2`."""
        given = dict(word.split("=") for word in rest.split(" "))
        self._sync(self.client(client), {self.client(one).member_id: text for one, text in given.items()})

    @phrase("CLIENT sends a heartbeat")
    def beats(self, client: str) -> None:
        """Heartbeat."""
        one = self.client(client)
        self._happens(Heartbeat(ticket=Ticket(one), request=one.heartbeat()))

    @phrase("CLIENT leaves")
    def leaves(self, client: str) -> None:
        """LeaveGroup of one member."""
        one = self.client(client)
        self._leave(one, MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id))

    @phrase("CLIENT removes instance INSTANCE")
    def removes(self, client: str, instance: str) -> None:
        """LeaveGroup by an administrator, who names a static member by its instance id alone."""
        self._leave(self.client(client), MemberIdentity(member_id="", group_instance_id=instance))

    @phrase("CLIENT commits OFFSETS")
    def commits(self, client: str, offsets: str) -> None:
        """OffsetCommit with the member id and the generation that the client believes in."""
        self._commit(self.client(client), offsets, NO_PRODUCER_ID)

    @phrase("CLIENT commits OFFSETS with producer PRODUCER")
    def commits_in_transaction(self, client: str, offsets: str, producer: str) -> None:
        """TxnOffsetCommit: the offsets count when the producer's transaction is committed."""
        self._commit(self.client(client), offsets, int(producer))

    @phrase("CLIENT wakes up in generation GENERATION: REST")
    def wakes_up(self, client: str, generation: str, rest: str) -> None:
        """The client goes on with what it was about to do when it fell asleep, in a generation that may be over."""
        one = self.client(client)
        known, one.generation = one.generation, int(generation)
        self.perform(f"{client} {rest}")
        one.generation = known

    @phrase("the transaction of producer PRODUCER is committed")
    def committed(self, producer: str) -> None:
        """Its marker is in the group's partition."""
        self._settle(int(producer), commit=True)

    @phrase("the transaction of producer PRODUCER is aborted")
    def aborted(self, producer: str) -> None:
        """Its marker is in the group's partition."""
        self._settle(int(producer), commit=False)

    @phrase("CLIENT waits for OFFSETS")
    def waits(self, client: str, offsets: str) -> None:
        """ConsumerGroupPosition v1: answered when a partition is committed so far, after 30 s at the latest."""
        one = self.client(client)
        request = position_request(
            GROUP, parsed(offsets), generation=one.generation, member_id=one.member_id, max_wait_ms=30_000
        )
        try:
            self.slot.authorize(Observe(member_id=one.member_id, generation=one.generation), self.now_ms)
        except KafkaError as refused:
            self._answer(Answer(Ticket(one), refusal(refused.code)))
            return
        for answer in self.slot.positions.watch(Ticket(one), request, self.slot.offsets.offset_of, self.now_ms):
            self._answer(answer)

    # --- what happens to the coordinator -------------------------------------------------------------------------

    @phrase("MS ms pass")
    def passes(self, ms: str) -> None:
        """Time passes, with a tick at every deadline on the way."""
        end_ms = self.now_ms + int(ms)
        while (due_ms := self.slot.next_deadline()) is not None and due_ms <= end_ms:
            shown = len(self.lines)
            passed_ms = due_ms - (end_ms - int(ms))
            self.now_ms = max(due_ms, self.now_ms)
            for answer in self.slot.positions.expire(self.slot.offsets.offset_of, self.now_ms):
                self._answer(answer)
            self._happens(Tick())
            again_ms = self.slot.next_deadline()
            assert again_ms is None or again_ms > self.now_ms, "a tick leaves nothing due behind"
            if len(self.lines) > shown:
                self.lines.insert(shown, f"after {passed_ms} ms")
        self.now_ms = end_ms

    @phrase("the journal takes what it was given")
    def journal_takes(self) -> None:
        """The records of a slow journal are replicated."""
        self.journal.take_waiting()

    @phrase("the journal refuses what it was given")
    def journal_refuses(self) -> None:
        """The records of a slow journal cannot be stored."""
        self.journal.refuse_waiting()

    @phrase("the coordinator dies and another one takes over")
    def fails_over(self) -> None:
        """Nobody is answered; what the journal has not taken is lost; the next coordinator reads the rest."""
        self.journal.waiting.clear()
        self._load()
        if self.slot.vacant:
            self.lines.append("loaded nothing")
            return
        self.lines.append(f"loaded {rendering.state(self.group)}, offsets {rendering.offsets_line(self.slot.offsets)}")

    @phrase("the coordinator resigns and another one takes over")
    def hands_over(self) -> None:
        """The broker leads the group's partition no longer: whoever waits is sent away first."""
        self._happens(Close(ErrorCode.NOT_COORDINATOR))
        self.fails_over()

    @phrase("an admin deletes the group")
    def deleted(self) -> None:
        """DeleteGroups."""
        try:
            self.slot.authorize(Delete(), self.now_ms)
        except KafkaError as refused:
            self.lines.append(f"answer an admin: DeleteGroups {refused.code.name}")
            return
        doomed = list(tombstones_of(GROUP, self.slot.offsets.partitions()))
        doomed.append((encode_key(GroupMetadataKey(group=GROUP)), None))
        self.lines.append(f"write {len(doomed)} tombstones")
        self.journal.take(doomed, NO_PRODUCER_ID)
        self._happens(Close(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._load()

    # --- what can be asked ---------------------------------------------------------------------------------------

    @phrase("group")
    def asked_group(self) -> None:
        """The state, the members, and what each waits for."""
        self.lines.append(rendering.group_line(self.group, self._name))

    @phrase("offsets")
    def asked_offsets(self) -> None:
        """What is committed, and what open transactions want to commit."""
        self.lines.append(rendering.offsets_line(self.slot.offsets))

    @phrase("deadline")
    def asked_deadline(self) -> None:
        """When the coordinator has to look at the group again, if nothing else happens."""
        due_ms = self.slot.next_deadline()
        self.lines.append("none" if due_ms is None else f"in {due_ms - self.now_ms} ms")

    # --- the machine and what is around it -----------------------------------------------------------------------

    @property
    def slot(self) -> GroupEntry:
        """The group with all that belongs to it, at the present coordinator."""
        if self._slot is None:
            self._load()
        assert self._slot is not None
        return self._slot

    @property
    def group(self) -> ClassicGroup:
        """The group itself."""
        return self.slot.group

    def client(self, name: str) -> Client:
        """The client of this name, which begins to exist when it is first named."""
        return self.clients.setdefault(name, Client(name))

    def _load(self) -> None:
        shard = Shard(0, 0)
        for entry in self.journal.entries:
            shard.apply(entry)
        shard.take_over(GroupLimits(**self.limits), self.rng, self.now_ms)
        self._slot = shard.slots.get(GROUP) or GroupEntry(ClassicGroup(GROUP, GroupLimits(**self.limits), self.rng), 0)

    def _happens(self, event: Event) -> None:
        before = rendering.state(self.group)
        effects = apply(self.group, event, self.now_ms)
        for member in self.group.members:
            self._learn(member.client_id, member.member_id)
        if rendering.state(self.group) != before:
            self.lines.append(f"group {rendering.state(self.group)}")
        for effect in effects:
            self._run(effect)

    def _run(self, effect: Effect) -> None:
        match effect:
            case Answer():
                self._answer(effect)
            case Persist():
                self._persist(effect)
            case RebalanceRequired(error=error):
                for answer in self.slot.positions.interrupt(error):
                    self._answer(answer)
            case Verdict():
                raise AssertionError(f"nobody asked for {effect}")
            case _:
                assert_never(effect)

    def _answer(self, answer: Answer) -> None:
        ticket: Ticket = answer.ticket
        assert not ticket.answered, f"{ticket.client.name} is answered twice"
        ticket.answered = True
        if isinstance(answer.response, JoinGroupResponse):
            ticket.client.member_id = answer.response.member_id
            if answer.response.error_code == ErrorCode.NONE:
                ticket.client.generation = answer.response.generation_id
            self._learn(ticket.client.name, answer.response.member_id)
        self.lines.append(f"answer {ticket.client.name}: {rendering.response(answer.response, self._name)}")

    def _learn(self, client: str, member_id: str) -> None:
        if member_id not in ("", *self.names):
            number = sum(one.partition(".")[0] == client for one in self.names.values()) + 1
            self.names[member_id] = f"{client}.{number}"

    def _name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id or "nobody")

    def _persist(self, effect: Persist) -> None:
        def then(error: ErrorCode, _: int) -> None:
            self._happens(
                Persisted(generation=effect.generation, error=error, answer=effect.answer, replaced=effect.replaced)
            )

        self.lines.append(rendering.written(effect, self._name))
        self.journal.write(
            [(encode_key(GroupMetadataKey(group=GROUP)), encode_group(effect.value))], NO_PRODUCER_ID, then
        )

    # --- requests ------------------------------------------------------------------------------------------------

    def _join(self, one: Client) -> None:
        self._happens(
            Join(ticket=Ticket(one), request=one.join(), version=JOIN_VERSION, client_id=one.name, client_host="/host")
        )

    def _sync(self, one: Client, given: dict[str, str]) -> None:
        self._happens(Sync(ticket=Ticket(one), request=one.sync(given)))

    def _leave(self, one: Client, who: MemberIdentity) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[who])
        self._happens(Leave(ticket=Ticket(one), request=request, version=LEAVE_VERSION))

    def _commit(self, one: Client, offsets: str, producer_id: int) -> None:
        transactional = producer_id != NO_PRODUCER_ID
        api = "TxnOffsetCommit" if transactional else "OffsetCommit"
        try:
            self.slot.authorize(one.commit(transactional=transactional), self.now_ms)
        except KafkaError as refused:
            self.lines.append(f"answer {one.name}: {api} {refused.code.name}")
            return
        slot = self.slot
        values = {
            place: CommittedOffset(offset=offset, commit_timestamp_ms=self.now_ms)
            for place, offset in parsed(offsets).items()
        }

        def then(error: ErrorCode, first: int) -> None:
            self.lines.append(f"answer {one.name}: {api} {error.name}")
            if error is not ErrorCode.NONE:
                return
            if transactional:
                slot.offsets.stage_all(producer_id, values, first)
            else:
                slot.offsets.commit_all(values, first)
                for answer in slot.positions.on_offsets_committed(values, slot.offsets.offset_of):
                    self._answer(answer)

        self.lines.append(
            f"write offsets {offsets.replace(',', ' ')}" + (f" of producer {producer_id}" if transactional else "")
        )
        self.journal.write(list(records_of(GROUP, values)), producer_id, then)

    def _settle(self, producer_id: int, *, commit: bool) -> None:
        self.journal.entries.append(TransactionEnd(producer_id, commit))
        slot = self.slot
        changed = slot.offsets.settle(producer_id, commit=commit)
        self.lines.append(
            "committed " + rendering.positions({place: slot.offsets.offset_of(place) for place in changed})
        )
        for answer in slot.positions.on_offsets_committed(changed, slot.offsets.offset_of):
            self._answer(answer)


def parsed(offsets: str) -> dict[TopicPartition, int]:
    """`orders-0=5,orders-1=7`."""
    found = {}
    for word in offsets.split(","):
        place, _, offset = word.partition("=")
        topic, _, index = place.rpartition("-")
        found[TopicPartition(topic, int(index))] = int(offset)
    return found
