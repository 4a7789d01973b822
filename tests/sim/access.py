"""A client loses a right in the midst of things, and gets it back.

With an authorizer, every client begins with all rights. The fault denies one client one operation, waits until all
brokers know, and takes the denial back. Meanwhile the client is refused and starts over as applications do; afterwards
it must go on. A49 judges that no broker serves it in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anabranch import Admin
from anabranch.chaos.checkers.transactions import COPIERS
from anabranch.protocol.acls import (
    ANYWHERE,
    EVERY_NAME,
    EVERYBODY,
    Acl,
    AclFilter,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.sim.administration import as_administrator
from tests.sim.clients import TOPIC, Application, Operator, Reader, Writer
from tests.sim.cluster import Machine, SimCluster
from tests.sim.copiers import OUT, Copier
from tests.sim.history import Denied

if TYPE_CHECKING:
    from tests.sim.schedule import Schedule

Entry = tuple[ResourcePattern, Acl]
SETTINGS: Final = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "allow_everyone_if_no_acl_found": True,
}
OPEN: Final[list[Entry]] = [
    (ResourcePattern(kind, EVERY_NAME), Acl(EVERYBODY, ANYWHERE, Operation.ALL, Permission.ALLOW))
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]
"""A resource with an entry for one client is closed to all others, so these allow everything to everybody."""
FAULT: Final = "a right is taken away"
KNOWN_WITHIN_S: Final = 2.0
UNANSWERED_S: Final = 1.0
"""Longer than a fetch that was accepted before the denial waits for records."""
GIVEN_BACK_WITHIN_S: Final = 60.0


class RightsOperator(Operator):
    """Allows everything to everybody, before any client starts."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster, [], pause_s=0, name="operator of rights")
        cluster.history.authorizes = True

    async def _create(self) -> None:
        async with self._admin() as admin:
            await admin.create_acls(OPEN)


def rights_of(application: Application) -> Iterator[tuple[ResourceType, str, Operation]]:
    """What a client needs, and can do without for a while."""
    if isinstance(application, Reader):
        yield ResourceType.TOPIC, TOPIC, Operation.READ
        yield ResourceType.TOPIC, TOPIC, Operation.DESCRIBE
        yield ResourceType.GROUP, application.group, Operation.READ
    elif isinstance(application, Writer):
        yield ResourceType.TOPIC, application.topic, Operation.WRITE
    elif isinstance(application, Copier):
        yield ResourceType.TOPIC, TOPIC, Operation.READ
        yield ResourceType.TOPIC, OUT, Operation.WRITE
        yield ResourceType.GROUP, COPIERS, Operation.READ
        yield ResourceType.TRANSACTIONAL_ID, application.name, Operation.WRITE


async def right_is_taken_away(schedule: Schedule) -> bool:
    """From one client, for a while; whether every broker heard of it."""
    cluster, rng, history = schedule.cluster, schedule.rng, schedule.cluster.history
    client = rng.choice(schedule.clients)
    rights = list(rights_of(client))
    if not rights or schedule.busy.get(FAULT, 0) > 1:
        return False
    kind, name, operation = rng.choice(rights)
    entry = ResourcePattern(kind, name), Acl(EVERYBODY, client.host, operation, Permission.DENY)
    try:
        await as_administrator(cluster, lambda admin: admin.create_acls([entry]), within_s=KNOWN_WITHIN_S)
        if not await _all_know(cluster, entry):
            return False
        cluster.tell(f"{client.name} may not {operation.name} {name}")
        await asyncio.sleep(UNANSWERED_S)
        span = Denied(history.tick(), client.name, "READ" if operation is Operation.READ else "WRITE", name)
        if kind is ResourceType.TOPIC and operation is not Operation.DESCRIBE:
            history.denials.append(span)
        await asyncio.sleep(rng.choice((0.0, 0.5, 3.0)))
        span.until_order = history.tick()
        return True
    finally:
        await give_back(cluster)


async def give_back(cluster: SimCluster) -> None:
    """Insist that nobody is denied anything."""
    denials = AclFilter(permission=Permission.DENY)

    async def delete(admin: Admin) -> None:
        await admin.delete_acls(denials)

    await as_administrator(cluster, delete, within_s=GIVEN_BACK_WITHIN_S)


async def _all_know(cluster: SimCluster, entry: Entry) -> bool:
    """Whether all brokers that live have an entry in time."""
    deadline = cluster.now() + KNOWN_WITHIN_S
    while not all(_knows(machine, entry) for machine in cluster.brokers):
        if cluster.now() >= deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def _knows(machine: Machine, entry: Entry) -> bool:
    if machine.process is None or not machine.process.alive:
        return True  # it reads the entries before it serves anybody
    services = getattr(machine.node, "services", None)
    return services is not None and entry[1] in services.authorizer.acls.get(entry[0], ())
