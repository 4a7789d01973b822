"""A node whose share coordinator acknowledges changes without storing them: its runs must fail."""

from __future__ import annotations

from typing import Any

from anabranch.broker.coordinators.share_partitions.share_coordinator import ShareCoordinator
from anabranch.cli.main import main


async def write(coordinator: ShareCoordinator, key: Any, **change: Any) -> None:
    """Answer, and do nothing."""
    if change["batches"]:
        coordinator._find(key)
    else:
        await stored(coordinator, key, **change)


stored = ShareCoordinator.write
ShareCoordinator.write = write  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
