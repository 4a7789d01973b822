"""The parameters of a chaos run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.chaos.faults import FAULTS, Fired


@dataclass
class Plan:
    """The parameters of a run."""

    duration_s: float = 600.0
    enough: Callable[[Sequence[Fired]], bool] = lambda fired: True
    """Whether enough faults have happened. Faults continue until then: on a busy machine they are later, and fewer."""
    seed: int = 0
    pace_s: float = 3.0
    """Mean time between bursts of faults."""
    writers: int = 2
    readers: int = 2
    keys: int = 20
    rate: float = 25.0
    """Records per second and writer."""
    resize_every_s: float = 15.0
    faults: tuple[str, ...] = tuple(FAULTS)
    patience_s: float = 90.0
    """The timeout of each step of the convergence after the faults."""
    audit: str | None = None
    """The topic to which readers write their deliveries."""
    sharers: int = 0
    """The number of members of a share group with its own topic (`share_readers`); brokers have to show Kafka 4.2."""
    copiers: int = 0
    """The number of members that copy the topic in transactions (`copiers`)."""
    instances: int = 0
    """The number of instances of a Streams application (`numbered_topic`)."""
    members: Mapping[str, str] = field(default_factory=dict)
    """Group -> the command of its members (`members`). With any, the topic only grows, unless it `shrinks`."""
    shrinks: bool = False
    """Whether the topic also shrinks under these groups, whose order of keys is then not guaranteed."""
    gated: bool = True
    """Whether coordinators withhold children from these groups. Not in the control run."""
