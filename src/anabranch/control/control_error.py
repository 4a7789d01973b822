"""The exception for requests that the control plane refuses."""

from __future__ import annotations


class ControlError(RuntimeError):
    """The control plane refused a request, or a wait timed out; the message says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        """The HTTP status, such as 408 for a wait that timed out."""
