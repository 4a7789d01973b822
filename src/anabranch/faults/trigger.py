"""Triggers of rules other than requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trigger:
    """A step of a controller, or a write to a disk."""

    node_id: int
    kind: str
    """"step" or "disk"."""
    detail: str
