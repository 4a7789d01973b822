"""Creates topics, also while an earlier one of the name is being deleted, which ends after the response."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.clients.topic_admin import NewTopic

DELETION_S: Final = 10.0
"""How long a deletion is waited for; it takes longer while a broker with a replica is down."""
POLL_S: Final = 0.05


async def create_after_deletion(admin: Admin, topic: NewTopic, *, deletion_s: float = DELETION_S) -> None:
    """Create a topic, as soon as an earlier one of its name is deleted. Raises KafkaError if it is refused."""
    deadline_s = asyncio.get_running_loop().time() + deletion_s
    while True:
        try:
            await admin.create_topics([topic])
        except KafkaError as error:
            if not _is_deletion(error) or asyncio.get_running_loop().time() >= deadline_s:
                raise
        else:
            return
        await asyncio.sleep(POLL_S)


def _is_deletion(error: KafkaError) -> bool:
    return error.code is ErrorCode.TOPIC_ALREADY_EXISTS and "marked for deletion" in str(error)
