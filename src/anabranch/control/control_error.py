"""What those get who ask the control plane for what it refuses."""

from __future__ import annotations


class ControlError(RuntimeError):
    """The control plane refused, or gave a wait up; the message says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        """The HTTP status, such as 408 for a wait that was given up."""
