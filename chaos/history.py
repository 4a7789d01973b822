"""The events of a run as data: clients' requests and responses, brokers' actions, ZooKeeper's commits.

Checkers are functions of a `History` alone, so each can be tested with a few hand-written events. Events carry their
place in one total order (`order`), which exists because a simulation has a single thread.

`outcome` is Jepsen's: "ok" happened, "fail" did not, "info" is unknown (a timeout, a lost connection, a crash).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anabranch.chaos.replication_events import (
    Acked,
    Admitted,
    DeletionRequested,
    HighWatermark,
    IsrAnswered,
    IsrRequest,
    Led,
    Proposed,
    ReportedEnd,
    Stray,
    Truncated,
)
from anabranch.chaos.resize_events import ResizeEvents
from anabranch.chaos.share_events import ShareEvents
from anabranch.chaos.transaction_events import CommittedRead, Marker, ProducerInitialized, Transaction
from anabranch.protocol.lineage import Lineage

Outcome = Literal["ok", "fail", "info"]
Place = tuple[str, int]
"""A topic and an index."""
Answer = tuple[str, int, int]
"""An API, the version of the request, and an error code in the response."""


@dataclass(slots=True)
class Send:
    """One record given to a producer. `value` names it; `sequence` counts within (producer, key)."""

    order: int
    producer: str
    key: str
    sequence: int
    value: str
    outcome: Outcome = "info"
    place: Place | None = None
    offset: int = -1
    acked_order: int = -1
    ordered: bool = True
    """Whether its producer keeps the order of its keys: one without generations does not."""


@dataclass(slots=True)
class Delivery:
    """One record delivered to an application by one member of a group, in one run of reading its partition."""

    order: int
    consumer: str
    run: int
    place: Place
    offset: int
    key: str
    value: str
    generation: int
    group_generation: int


@dataclass(slots=True)
class ReadStart:
    """A member starts (or seeks) to read a partition at an offset: a new run."""

    order: int
    consumer: str
    run: int
    place: Place
    offset: int
    group_generation: int


@dataclass(slots=True)
class Callback:
    """A listener's callback was completed."""

    order: int
    consumer: str
    kind: Literal["revoked", "lost", "assigned"]
    places: tuple[Place, ...]


@dataclass(slots=True)
class Died:
    """A member was killed, or its application dropped it: unflushed state is lost."""

    order: int
    consumer: str


@dataclass(slots=True)
class Commit:
    """A member committed offsets. `acked_order` is -1 if it never got the response."""

    order: int
    consumer: str
    offsets: Mapping[Place, int]
    group_generation: int
    outcome: Outcome = "info"
    acked_order: int = -1


@dataclass(slots=True)
class Stored:
    """One record in a leader's log at the end of the run."""

    place: Place
    offset: int
    leader_epoch: int
    key: str
    value: str
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1


@dataclass(slots=True)
class StateWritten:
    """A partition's state as committed in ZooKeeper; in zxid order."""

    order: int
    place: Place
    version: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    generation: int = 0
    sealed: bool = False
    session_id: int = 0
    registered: tuple[int, ...] = ()
    """The brokers registered at that moment."""
    topic_id: str = ""
    """The id of the topic with this name at that moment: a recreated topic has another."""


@dataclass(slots=True)
class EpochWritten:
    """A session raised /controller_epoch."""

    order: int
    epoch: int
    session_id: int


@dataclass(slots=True)
class ZnodeWritten:
    """A write to a znode that controllers own, except partition states; in zxid order.

    Session 0 is the server itself, which ends sessions, and ZooKeeper's own tools.
    """

    order: int
    zxid: int
    path: str
    kind: Literal["created", "changed", "deleted"]
    session_id: int


@dataclass(slots=True)
class Seen:
    """A process has a number that must never decrease: an epoch, a generation."""

    order: int
    process: str
    what: str
    number: int


@dataclass(slots=True)
class Published:
    """A topic's committed history of resizes."""

    order: int
    topic: str
    base: int
    history: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Assigned:
    """A member of a group was assigned partitions, in one generation of the group."""

    order: int
    group: str
    generation: int
    member: str
    places: tuple[Place, ...]


@dataclass(slots=True)
class OffsetsReset:
    """An admin set the committed offsets of a group without members; "info": the outcome is unknown."""

    order: int
    group: str
    offsets: Mapping[Place, int]
    outcome: Outcome = "info"
    with_lineage: bool = True
    """Whether partitions that took keys from these went back, too. Without it keys lose the order of the first time."""
    answered_order: int = -1
    """When the admin got the response; -1 never. It happened some time before."""


@dataclass(slots=True)
class OffsetsFetched:
    """A member received its group's committed offsets. Offsets pending in open transactions are left out."""

    order: int
    response_order: int
    group: str
    offsets: Mapping[Place, int]


@dataclass(slots=True)
class Denied:
    """A client had no right to a topic, and every broker knew that.

    The span begins when brokers have answered what they accepted before, and ends when the right is asked for again.
    """

    order: int
    client: str
    """Its name; each of its processes adds a dot and a number."""
    operation: Literal["READ", "WRITE"]
    topic: str
    until_order: int = -1


@dataclass
class History:
    """All events of a run, each kind in its order."""

    sends: list[Send] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    read_starts: list[ReadStart] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    instances: dict[str, str] = field(default_factory=dict)
    """The instance id of each consumer that is a static member."""
    died: list[Died] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    states: list[StateWritten] = field(default_factory=list)
    epochs: list[EpochWritten] = field(default_factory=list)
    znodes: list[ZnodeWritten] = field(default_factory=list)
    deletions: list[DeletionRequested] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    high_watermarks: list[HighWatermark] = field(default_factory=list)
    truncations: list[Truncated] = field(default_factory=list)
    acks: list[Acked] = field(default_factory=list)
    proposals: list[Proposed] = field(default_factory=list)
    reported_ends: list[ReportedEnd] = field(default_factory=list)
    isr_requests: list[IsrRequest] = field(default_factory=list)
    isrs_answered: list[IsrAnswered] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)
    answers: Counter[Answer] = field(default_factory=Counter)
    """How often brokers gave each response."""
    seen: list[Seen] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    producers: list[ProducerInitialized] = field(default_factory=list)
    committed_reads: list[CommittedRead] = field(default_factory=list)
    copiers_commits: list[Commit] = field(default_factory=list)
    """Commits of the copiers' consumers at the ends of key epochs, outside transactions."""
    copied: list[Stored] = field(default_factory=list)
    """The log of the topic that is written in transactions, without its markers."""
    markers: list[Marker] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    fetched: list[OffsetsFetched] = field(default_factory=list)
    resets: list[OffsetsReset] = field(default_factory=list)
    denials: list[Denied] = field(default_factory=list)
    authorizes: bool = False
    """Whether brokers authorize requests, so that a client may be refused."""
    resizes: ResizeEvents = field(default_factory=ResizeEvents)
    shares: ShareEvents = field(default_factory=ShareEvents)
    strays: list[Stray] = field(default_factory=list)
    replicas: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """Each replica's bytes up to the leader's high watermark at the end of the run."""
    epoch_caches: dict[Place, dict[int, tuple[tuple[int, int], ...]]] = field(default_factory=dict)
    """Each replica's leader epochs with their start offsets, up to the end of `replicas`."""
    log_starts: dict[Place, int] = field(default_factory=dict)
    """Partition -> log start offset at the end of the run, where records were deleted.

    That of a removed one is its end.
    """
    deletion_offsets: dict[Place, int] = field(default_factory=dict)
    """Partition -> the offset below which records were deleted, by request or by retention."""
    deleted_unread: dict[Place, int] = field(default_factory=dict)
    """Likewise, for deletions that did not wait until groups had read the records."""
    unread: set[str] = field(default_factory=set)
    """Topics that no consumer reads."""
    gone: set[str] = field(default_factory=set)
    """Deleted topics. A recreated topic has another name in the history."""
    barriers: bool = True
    """Whether all members of the group are in one generation at a time. Not where the broker assigns: each member then
    has its own epochs, and commits kept partitions while others are at later ones."""
    complete: bool = True
    """Whether the run was completed, so that all stored records were read and delivered."""
    failures: list[str] = field(default_factory=list)
    """Failures that the run itself detected: unhandled exceptions, logged bugs, no convergence."""
    story: list[tuple[float, str]] = field(default_factory=list)
    _order: int = 0

    def tick(self) -> int:
        """Return the next place in the order."""
        self._order += 1
        return self._order

    def tell(self, at_s: float, line: str) -> None:
        """Add a line to the run's story; `at_s` is in seconds from its start."""
        self.story.append((at_s, line))

    def deleted(self, place: Place, offset: int) -> bool:
        """Whether this record was deleted, by request or by retention."""
        before = min(self.deletion_offsets.get(place, 0), self.log_starts.get(place, 0))
        return place[0] in self.gone or offset < before

    def note_deletion(self, place: Place, before: int, *, only_read: bool = True) -> None:
        """Note that records below an offset may be deleted; `only_read`: because groups have committed them."""
        for noted in (self.deletion_offsets,) if only_read else (self.deletion_offsets, self.deleted_unread):
            noted[place] = max(before, noted.get(place, 0))

    def lineage(self, topic: str) -> Lineage | None:
        """Return the topic's lineage at the end of the run; None if it is not ordered."""
        last = next((one for one in reversed(self.published) if one.topic == topic), None)
        return None if last is None or not last.history else Lineage(last.base, last.history)

    def generation_of(self, place: Place, leader_epoch: int) -> int:
        """Return the class generation that a partition served in a leader epoch, as committed by the controller."""
        found = [one.generation for one in self.states if one.place == place and one.leader_epoch <= leader_epoch]
        return found[-1] if found else 0

    def fingerprint(self) -> str:
        """Return a hash of nearly everything observed: equal runs have equal fingerprints."""
        digest = hashlib.sha256()
        for name in (
            "story",
            "sends",
            "deliveries",
            "commits",
            "states",
            "high_watermarks",
            "acks",
            "stored",
            "transactions",
            "committed_reads",
        ):
            for event in getattr(self, name):
                digest.update(repr(event).encode())
        return digest.hexdigest()[:16]
