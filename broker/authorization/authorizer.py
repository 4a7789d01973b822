"""Authorizes operations by access control lists.

The rules are those of Kafka's `AclAuthorizer`. A super user may do everything. A resource without entries is open to
all or to none, as configured. Otherwise any matching DENY overrides any ALLOW, however specific either is. An entry for
another principal closes a resource to all principals without an entry. ALLOW may imply other operations (`IMPLIED_BY`);
DENY never does.

Decisions are cached until an entry changes, so a request costs one dictionary lookup, whatever the number of entries.
An uncached decision looks up the name, and its prefix of each length that a prefixed pattern has, instead of scanning
all patterns. The cache is bounded, because clients choose the names.

Sources: `AclAuthorizer`, `AclEntry`, `Authorizer.authorizeByResourceType` (KIP-11, KIP-290, KIP-679).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from anabranch.protocol.acls import (
    ANYWHERE,
    EVERY_NAME,
    EVERYBODY,
    SUPPORTED,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

KEPT_DECISIONS: Final = 100_000

IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation -> the other operations that imply it."""

_ANY_NAME: Final = None


class Authorizer:
    """A cluster's access control entries, and cached decisions."""

    def __init__(self, super_users: Iterable[str] = (), *, open_without_acls: bool = False) -> None:
        """`open_without_acls`: resources without entries are open to all (`allow.everyone.if.no.acl.found`)."""
        self._super_users = frozenset(super_users)
        self._open = False
        self._open_without_acls = open_without_acls
        self._acls: dict[ResourcePattern, frozenset[Acl]] = {}
        self._literal: dict[tuple[int, str], frozenset[Acl]] = {}
        self._prefixed: dict[tuple[int, str], frozenset[Acl]] = {}
        self._lengths: dict[int, Counter[int]] = {}
        self.strangers: set[str] = set()
        """Principals that were refused as brokers and already logged."""
        self._decided: dict[tuple[str, str, int, str | None], bool] = {}
        self.changes = 0
        """How often entries have changed: earlier decisions hold until the next change."""

    def set_loaded(self) -> None:
        """Note that all entries are loaded. Before that, no resource is open: its entries may not be loaded yet."""
        self._open = self._open_without_acls
        self._on_change()

    @property
    def acls(self) -> Mapping[ResourcePattern, frozenset[Acl]]:
        """All entries by pattern; no set is empty."""
        return self._acls

    def replace(self, pattern: ResourcePattern, acls: Iterable[Acl]) -> None:
        """Replace a pattern's entries, and clear the cached decisions."""
        entries = frozenset(acls)
        had = self._acls.pop(pattern, frozenset())
        if entries:
            self._acls[pattern] = entries
        key = (pattern.resource_type, pattern.name)
        table = self._literal
        if pattern.pattern_type == PatternType.PREFIXED:
            table = self._prefixed
            lengths = self._lengths.setdefault(pattern.resource_type, Counter())
            lengths[len(pattern.name)] += bool(entries) - bool(had)
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]
        table.pop(key, None)
        if entries:
            table[key] = entries
        self._on_change()

    def _on_change(self) -> None:
        self._decided.clear()
        self.changes += 1

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a principal from a host may perform an operation on a resource."""
        key = (principal, host, operation << 3 | resource_type, name)  # hashing enum members is slow
        decided = self._decided.get(key)
        if decided is None:
            decided = self._keep(key, self._decide(principal, host, operation, resource_type, name))
        return decided

    def allows_some(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may perform an operation on some resource of a type, without implied operations."""
        key = (principal, host, operation << 3 | resource_type, _ANY_NAME)
        decided = self._decided.get(key)
        if decided is None:
            decided = self._keep(key, self._decide_some(principal, host, operation, resource_type))
        return decided

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return the principal's allowed operations on a resource as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def _keep(self, key: tuple[str, str, int, str | None], decision: bool) -> bool:
        if len(self._decided) >= KEPT_DECISIONS:
            self._decided.clear()
        self._decided[key] = decision
        return decision

    def _decide(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        found = list(self._matching(resource_type, name))
        if not found:
            return self._open
        mine = [acl for acls in found for acl in acls if _is_about(acl, principal, host)]
        operations = {operation, Operation.ALL}
        if any(acl.permission == Permission.DENY and acl.operation in operations for acl in mine):
            return False
        enough = operations | IMPLIED_BY.get(operation, frozenset())
        return any(acl.permission == Permission.ALLOW and acl.operation in enough for acl in mine)

    def _matching(self, resource_type: ResourceType, name: str) -> Iterator[frozenset[Acl]]:
        for literal in (EVERY_NAME, name):
            if acls := self._literal.get((resource_type, literal)):
                yield acls
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name) and (acls := self._prefixed.get((resource_type, name[:length]))):
                yield acls

    def _decide_some(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        operations = (operation, Operation.ALL)
        allowed: list[ResourcePattern] = []
        denied: set[str] = set()
        denied_prefixes: list[str] = []
        for pattern, acls in self._acls.items():
            if pattern.resource_type != resource_type:
                continue
            mine = {acl.permission for acl in acls if acl.operation in operations and _is_about(acl, principal, host)}
            if Permission.ALLOW in mine:
                allowed.append(pattern)
            if Permission.DENY in mine and pattern.pattern_type == PatternType.PREFIXED:
                denied_prefixes.append(pattern.name)
            elif Permission.DENY in mine:
                denied.add(pattern.name)
        if EVERY_NAME in denied:
            return False
        barred = tuple(denied_prefixes)
        return self._open or any(_is_left(pattern, denied, barred) for pattern in allowed)


def super_users_in(text: str) -> frozenset[str]:
    """Parse `super.users`: principals separated by semicolons, because certificate names contain commas.

    Raises ValueError for an entry without type or name, and for an empty entry that is not the last.
    """
    users = [user.strip() for user in text.rstrip("; ").split(";")] if text.strip("; ") else []
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{user!r} in super.users is not of the form User:alice")
    return frozenset(users)


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, ANYWHERE)


def _is_left(pattern: ResourcePattern, denied: set[str], barred: tuple[str, ...]) -> bool:
    """Whether the pattern allows a resource that no other pattern denies."""
    if pattern.pattern_type == PatternType.LITERAL:
        if pattern.name == EVERY_NAME:
            return True
        if pattern.name in denied:
            return False
    return not pattern.name.startswith(barred)
