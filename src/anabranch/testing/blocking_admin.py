"""A blocking `anabranch.Admin` for synchronous tests, with or without a running event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any, Unpack

from anabranch.clients.admin import Admin
from anabranch.clients.security import SecurityArguments
from anabranch.clients.security_config import refuse_unknown_arguments


class BlockingAdmin:
    """The methods of `Admin`, each as a blocking call with its own connection.

        admin.create_topics([NewTopic(name="orders", partitions=3)])
        admin.describe_topic("orders")

    They run in a separate thread, because the test's thread may run a loop.
    """

    def __init__(self, bootstrap_servers: str, **security: Unpack[SecurityArguments]) -> None:
        refuse_unknown_arguments(Admin, security)
        self._bootstrap_servers = bootstrap_servers
        self._security = security

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not asyncio.iscoroutinefunction(getattr(Admin, name, None)):
            raise AttributeError(f"Admin has no blocking method {name!r}")
        return functools.partial(self._call, name)

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        done: dict[str, Any] = {}

        async def ask() -> Any:
            async with Admin(self._bootstrap_servers, **self._security) as admin:
                return await getattr(admin, name)(*arguments, **named)

        def run() -> None:
            try:
                done["result"] = asyncio.run(ask())
            except BaseException as error:  # raised in the caller's thread
                done["error"] = error

        thread = threading.Thread(target=run, name=f"admin {name}", daemon=True)
        thread.start()
        thread.join()
        if "error" in done:
            raise done["error"]
        return done["result"]
