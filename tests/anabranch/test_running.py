"""Starting without collections must not become living without them."""

from __future__ import annotations

import gc

from anabranch.running import postpone_collection, settle_memory


def test_collections_run_again_once_memory_is_settled() -> None:
    frozen_before = gc.get_freeze_count()
    postpone_collection()
    try:
        assert not gc.isenabled()
        kept = [[] for _ in range(1000)]
        settle_memory()
        assert gc.isenabled()
        assert gc.get_freeze_count() >= frozen_before + len(kept)
    finally:
        gc.enable()
        if not frozen_before:
            gc.unfreeze()
