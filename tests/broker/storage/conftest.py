from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.os_files import OsFiles


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Both adapters of the port: whatever is tested with it holds for a cluster in memory and for one on disk."""
    if request.param == "memory":
        return MemoryFiles()
    adapter = OsFiles(tmp_path / "data", open_descriptors_max=4)
    request.addfinalizer(adapter.close)
    return adapter
