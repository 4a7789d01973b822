"""Paths and bodies of ACL znodes, as Kafka writes them.

Literal and prefixed patterns have a tree each, and so have the notifications of their changes, which only name the
pattern to read again. Sources: `kafka.zk.ZkAclStore`, `AclEntry`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from anabranch.controller.zk.body import Body, MalformedZnode, dump
from anabranch.protocol.acls import (
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    from_camel,
    to_camel,
)

TREES: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES: Final = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_NAME: Final = "acl_changes_"
VERSION: Final = 1
_IMPOSSIBLE: Final = re.compile("[/\\x00-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\U0010ffff]")
"""Source: `org.apache.zookeeper.common.PathUtils`."""


def all_parents() -> list[str]:
    """Return the znodes that exist before any entry."""
    return [*(parent_of(kind, tree) for tree in PatternType for kind in ResourceType), *CHANGES.values()]


def parent_of(resource_type: ResourceType, pattern_type: PatternType) -> str:
    """Return the parent znode of a type's patterns."""
    return f"{TREES[pattern_type]}/{to_camel(resource_type)}"


def path_of(pattern: ResourcePattern) -> str:
    """Return the znode with the entries of a pattern."""
    return f"{parent_of(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"


def is_valid_name(name: str) -> bool:
    """Whether a znode may have this name; ZooKeeper refuses invisible characters and surrogate pairs."""
    return name not in ("", ".", "..") and not _IMPOSSIBLE.search(name)


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """Encode the entries of one pattern, in a canonical order."""
    ordered = sorted(acls, key=lambda acl: (acl.principal, acl.permission, acl.operation, acl.host))
    return dump({"version": VERSION, "acls": [_entry(acl) for acl in ordered]})


def decode_acls(path: str, data: bytes) -> frozenset[Acl]:
    """Decode the entries of one pattern. An unknown entry fails all: left out, it could be one that denies."""
    fields = Body.parse(path, data).fields
    if fields.get("version") != VERSION:
        raise MalformedZnode(path, f"version {fields.get('version')!r} is not {VERSION}")
    entries = fields.get("acls", [])
    if not isinstance(entries, list):
        raise MalformedZnode(path, "acls is not a list")
    try:
        return frozenset(_acl(entry) for entry in entries)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedZnode(path, f"a malformed ACL ({error})") from None


def encode_change(pattern: ResourcePattern) -> tuple[str, bytes]:
    """Encode a change notification for this pattern: the prefix of its path, and its body."""
    prefix = f"{CHANGES[pattern.pattern_type]}/{CHANGE_NAME}"
    if pattern.pattern_type == PatternType.LITERAL:
        return prefix, f"{pattern.resource_type.name}:{pattern.name}".encode()
    return prefix, dump(
        {
            "version": VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(path: str, data: bytes) -> ResourcePattern:
    """Decode a change notification into the pattern to read again."""
    try:
        if path.startswith(CHANGES[PatternType.LITERAL] + "/"):
            kind, colon, name = data.decode().partition(":")
            if not (colon and name):
                raise ValueError(f"{kind!r} is not a type and a name")
            return ResourcePattern(ResourceType[kind.upper()], name)
        body = Body.parse(path, data)
        kind, pattern = body.text("resourceType").upper(), body.text("patternType").upper()
        return ResourcePattern(ResourceType[kind], body.text("name"), PatternType[pattern])
    except (KeyError, ValueError) as error:
        raise MalformedZnode(path, f"a malformed change notification ({error})") from None


def _entry(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permissionType": to_camel(acl.permission),
        "operation": to_camel(acl.operation),
        "host": acl.host,
    }


def _acl(entry: Any) -> Acl:
    principal, host = entry["principal"], entry["host"]
    if not (isinstance(principal, str) and isinstance(host, str)):
        raise TypeError("principal and host must be strings")
    operation = from_camel(Operation, entry["operation"])
    return Acl(principal, host, operation, from_camel(Permission, entry["permissionType"]))
