"""A client during task assignment. Source: ClientState of Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_assignor import UNBOUNDED_LAG, Client, Placement, process_order
from anabranch.clients.streams.task_id import TaskId


class ClientState:
    """The tasks assigned to a client so far; never the same task twice."""

    __slots__ = ("active", "capacity", "client", "standby")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.capacity = client.capacity
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()

    @property
    def count(self) -> int:
        """The number of tasks, of both kinds."""
        return len(self.active) + len(self.standby)

    @property
    def load(self) -> float:
        """Tasks per thread."""
        return (len(self.active) + len(self.standby)) / self.capacity

    @property
    def active_load(self) -> float:
        """Active tasks per thread."""
        return len(self.active) / self.capacity

    def holds(self, task: TaskId) -> bool:
        """Whether the client has the task, active or as a standby."""
        return task in self.active or task in self.standby

    def lag(self, task: TaskId) -> int:
        """Return how much of a stateful task's changelog the client lacks."""
        return self.client.lags[task]

    def is_caught_up(self, task: TaskId, acceptable_lag: int) -> bool:
        """Whether the client could run the task at once."""
        lag = self.lag(task)
        return lag == RUNNING or acceptable_lag == UNBOUNDED_LAG or 0 <= lag <= acceptable_lag

    def has_more_room_than(self, other: ClientState) -> bool:
        """Whether this client has less load, or the same on more threads."""
        return (self.load, -self.capacity) < (other.load, -other.capacity)


def states_of(clients: Iterable[Client]) -> list[ClientState]:
    """Return empty states, by process."""
    return [ClientState(client) for client in sorted(clients, key=lambda one: process_order(one.process_id))]


def placement_of(states: Sequence[ClientState], *, probing: bool) -> Placement:
    """Return the placement in these states."""
    return Placement(
        active={state.client.process_id: frozenset(state.active) for state in states},
        standby={state.client.process_id: frozenset(state.standby) for state in states},
        probing=probing,
    )


def least_loaded(states: Iterable[ClientState], may: Callable[[ClientState], bool]) -> ClientState | None:
    """Return the least loaded client among those that `may`; the first of several."""
    return min(filter(may, states), key=lambda state: state.load, default=None)


def improves(source: tuple[int, int], target: tuple[int, int]) -> bool:
    """Whether moving a task from source to target balances the load, rather than only reversing the difference.

    Each is given as its number of tasks and of threads.
    """
    count, threads = source
    target_count, target_threads = target
    after = (count - 1) / threads - (target_count + 1) / target_threads
    return 0 <= after < count / threads - target_count / target_threads
