"""Removes expired members of broker-assigned groups, and retries if the removal cannot be written."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.protocol.errors import KafkaError

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry

log: Final = logging.getLogger(__name__)

RETRY_MS: Final = 500


@contextlib.contextmanager
def removing(
    runtime: GroupRuntime, slot: GroupEntry, expired: Collection[tuple[Any, Timer]], now_ms: int
) -> Iterator[None]:
    """Log the members that the block removes; after a KafkaError set their timers again. Reschedule the group."""
    group: Any = slot.group
    try:
        yield
    except KafkaError as error:
        for member, timer in expired:
            if member.member_id in group.members:
                group.timers.set(member.member_id, timer, now_ms + RETRY_MS)
        log.warning("cannot remove expired members of %s yet: %s", group.group_id, error)
    else:
        for member, timer in expired:
            log.info("removed member %s of %s: %s", member.member_id, group.group_id, timer.value)
    finally:
        runtime.reschedule(slot)
