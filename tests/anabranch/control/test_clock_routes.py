"""A cluster without its own clock refuses clock requests; test_clock_client covers the rest over HTTP."""

from __future__ import annotations

import pytest

from anabranch.control.actions import ActionRefused
from tests.anabranch.control.conftest import controlled
from tests.anabranch.control.test_routes import ask


async def test_cluster_without_own_clock_refuses_clock_routes() -> None:
    async with controlled(brokers=1) as on:
        for name in ("get_clock", "change_clock"):
            with pytest.raises(ActionRefused, match="this cluster has no clock of its own"):
                await ask(on, name, body={"advance": "1s"})
