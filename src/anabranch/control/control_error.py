"""The exceptions of clients of the control plane."""

from __future__ import annotations


class NotTrusted(ConnectionError):
    """The TLS handshake with the control plane failed; the message says why."""


class ControlError(RuntimeError):
    """The control plane refused a request, or a wait timed out; the message says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        """The HTTP status, such as 408 for a wait that timed out."""
