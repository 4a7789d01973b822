"""Counts the effects of faults: a fault without its effect has tested nothing.

The menu (`faults.py`) counts a fault when it ended and had an effect. These are the effects themselves, as the network,
disks, ZooKeeper and the cluster count them, each beside what it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from tests.sim.chores import CHORES
from tests.sim.faults import FAULTS

EFFECTS: Final[Mapping[str, str]] = {
    "process killed": "SIGKILL of a node",
    "client killed": "SIGKILL of a producer or a member of the group",
    "process frozen": "SIGSTOP of a node, for less and for more than its session's timeout",
    "client frozen": "SIGSTOP of a producer or a member of the group",
    "power lost": "a machine loses what it had not flushed",
    "unflushed bytes lost": "how much that was",
    "torn write": "the last write before a power failure arrived in part",
    "replaced file came back old": "a rename that a power failure undid",
    "flush that did nothing": "a disk that lies about flushing",
    "no space left": "a write on a full disk",
    "died in the middle of an append": "SIGKILL between two bytes of a batch",
    "truncation": "a follower cut its log",
    "split read": "a frame that arrives in two pieces",
    "frame cut": "a connection that ends in the middle of a frame",
    "connection reset": "a connection lost with what was under way",
    "connection refused": "nobody listens",
    "connection to a dark host": "nobody even refuses",
    "connection attempt into a blocked link": "a partition met by a new connection",
    "delivery held by a blocked link": "a partition met by a message",
    "delivery held by a link blocked one way": "answers arrive and requests do not, or the other way round",
    "slow delivery": "a link that is slow",
    "overtaken on another connection": "messages between two hosts change their order",
    "session expired": "ZooKeeper ends the session of a node that lives",
    "session expired while frozen": "the node thinks that it is in office, and is not",
    "session suspended": "a node is cut off from ZooKeeper",
    "answer lost": "ZooKeeper did it, and the node does not know",
    "carried out unheard": "the same with a request that was still on its way",
    "carried out for the dead": "a write arrives after its writer's death",
    "watch delayed": "a watch comes late",
    "clock jumped": "the wall clock goes wrong",
}

ENOUGH: Final = 50
"""Schedules in which whatever is not rare happens, however they fall out."""
RARE: Final[Mapping[str, int]] = {
    "fault: power failure": 500,
    "fault: power failure everywhere": 500,
    "fault: copier replaced": 500,
    "fault: a response of zookeeper is lost": 500,
    "fault: application blocks": 500,
    "session expired while frozen": 500,
    "answer lost": 500,
    "carried out for the dead": 500,
    "chore: write to the side": 500,
    "chore: grow a topic": 2000,
    "chore: cancel a move": 2000,
    "carried out unheard": 20000,
    "descendant rewound": 500,
}
"""What comes up in less than one schedule of five, and in how many schedules it does for sure.

With fewer, that it did not happen would be chance: any change of the product makes other schedules of the seeds.
"""


def silent(fired: Counter[str], schedules: int) -> list[str]:
    """The faults, effects and chores that never happened."""
    wanted = [*(f"fault: {name}" for name in FAULTS), *EFFECTS, *(f"chore: {name}" for name in CHORES)]
    return missing(wanted, fired, schedules)


def missing(wanted: Iterable[str], fired: Counter[str], schedules: int) -> list[str]:
    """What never happened although there were enough schedules for it."""
    return [name for name in wanted if not fired[name] and schedules >= RARE.get(name, ENOUGH)]
