"""The control agents that a launcher starts in its nodes: each on a port of loopback, with a token of its own."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

LOOPBACK: Final = "127.0.0.1"
CONTROL_TOKEN: Final = "ANABRANCH_CONTROL_TOKEN"
"""The environment variable with the token of a node's control agent."""
TOKEN_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of the control agents in the nodes."""

    journal_size: int = 0
    """The number of exchanges that each node keeps; 0 for no journal."""
    frames: bool = False
    """Whether a journal keeps the bytes of exchanges, too."""


@dataclass(frozen=True, slots=True)
class LaunchedAgent:
    """The port and the token of a node's control agent."""

    port: int
    token: str = field(repr=False)
    options: AgentOptions

    @property
    def url(self) -> str:
        """The root URL."""
        return f"http://{LOOPBACK}:{self.port}"

    @classmethod
    def new(cls, port: int, options: AgentOptions) -> LaunchedAgent:
        """An agent with a new token."""
        return cls(port, secrets.token_urlsafe(TOKEN_BYTES), options)

    def environment(self) -> dict[str, str]:
        """The variable that gives a node its token."""
        return {CONTROL_TOKEN: self.token}

    def arguments(self) -> list[str]:
        """The options of `anabranch node`, without the token, which a command line would reveal."""
        words = ["--control", f"{LOOPBACK}:{self.port}"]
        if self.options.journal_size:
            words += ["--control-journal", str(self.options.journal_size)]
        return [*words, "--control-frames"] if self.options.frames else words
