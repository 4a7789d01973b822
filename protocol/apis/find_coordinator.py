"""FindCoordinator (key 10), v0-v6, flexible from v3.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int16, Int32, Int8, Text, since, until


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    key: Text = until(3, absent="")
    key_type: Int8 = since(1, absent=0)
    coordinator_keys: list[Text] = since(4, absent=list)


@dataclass(slots=True, kw_only=True)
class Coordinator:
    key: Text
    node_id: Int32
    host: Text
    port: Int32
    error_code: Int16
    error_message: Text | None


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16 = until(3, absent=0)
    error_message: Text | None = since(1, absent="", until=3)
    node_id: Int32 = until(3, absent=0)
    host: Text = until(3, absent="")
    port: Int32 = until(3, absent=0)
    coordinators: list[Coordinator] = since(4, absent=list)
