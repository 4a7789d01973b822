"""What the login stories share: the register, the users, and the requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.protocol.apis.metadata import MetadataRequest
from tests.differential.dialogue import Dialogue, Talk

PASSWORD: Final = "wonderland"
SESSION_S: Final = 1.6
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ME: Final = MetadataRequest(topics=[], allow_auto_topic_creation=False)

Story = Callable[[Talk], Awaitable[None]]
STORIES: Final[list[Story]] = []


def story(told: Story) -> Story:
    """Put it among the others."""
    STORIES.append(told)
    return told


def plain_token(user: str = "alice", password: str = PASSWORD, acts_for: str = "") -> bytes:
    """The token of PLAIN."""
    return f"{acts_for}\0{user}\0{password}".encode()


async def log_in(peer: Dialogue, version: int = 2) -> None:
    """A login by PLAIN."""
    await peer.handshake("PLAIN")
    await peer.authenticate(plain_token(), version)
