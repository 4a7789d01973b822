"""The routes of the dashboard: the state as rows, current and past, and the tree of znodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypedDict

from anabranch.control.actions import UnknownNode
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.route import ControlRequest, Route
from anabranch.dashboard.rows import DashboardRows

if TYPE_CHECKING:
    from anabranch.dashboard.feed import Feed

DATA_SHOWN: Final = 16_384
"""The maximum number of a znode's bytes that are shown."""


class HasFeed(Protocol):
    """The interface of a controlled object with a dashboard."""

    @property
    def feed(self) -> Feed | None:
        """The dashboard's feed; created at the first request."""


class PastRowsQuery(TypedDict):
    """The moment of past rows."""

    at: Annotated[float, "the moment on the clock of events, in seconds"]


class ZnodeQuery(TypedDict, total=False):
    """The znode to get."""

    path: Annotated[str, "the znode; default: /"]


class ZnodeChildRow(TypedDict):
    """A child of a znode."""

    name: str
    children: Annotated[int, "the number of its children"]


class ZnodeRow(TypedDict):
    """A znode and its children."""

    path: str
    data: Annotated[str, f"the data as text, up to {DATA_SHOWN} bytes"]
    bytes: Annotated[int, "the size of the data"]
    version: int
    czxid: int
    mzxid: int
    owner: Annotated[str, "the session that owns an ephemeral znode; empty for others"]
    children: list[ZnodeChildRow]


async def get_dashboard_rows(on: HasFeed, request: ControlRequest) -> DashboardRows:
    """Get the current rows."""
    feed = _feed(on)
    await feed.collect()
    return {"at": feed.now_s(), "rows": feed.rows}


async def get_past_dashboard_rows(on: HasFeed, request: ControlRequest) -> DashboardRows:
    """Get the rows at an earlier moment."""
    text = request.query.get("at", "")
    try:
        at_s = float(text)
    except ValueError:
        raise ValueError(f"at is a time in seconds, as in events, not {text!r}") from None
    history = _feed(on).history
    found = history.at(at_s)
    if found is None:
        begin_s = history.begin_s
        raise UnknownNode("nothing is recorded yet" if begin_s is None else f"the record begins at {begin_s:.3f}")
    since_s, rows = found
    return {"at": since_s, "rows": rows}


async def get_znode(on: ControlledCluster, request: ControlRequest) -> ZnodeRow:
    """Get one znode, and the names of its children."""
    path = request.query.get("path", "/")
    node = on.cluster.zookeeper.tree.nodes.get(path)
    if node is None:
        raise UnknownNode(f"there is no znode {path}")
    return {
        "path": path,
        "data": node.data[:DATA_SHOWN].decode(errors="replace"),
        "bytes": len(node.data),
        "version": node.version,
        "czxid": node.czxid,
        "mzxid": node.mzxid,
        "owner": f"{node.owner:#x}" if node.owner else "",
        "children": [
            {"name": name, "children": len(on.cluster.zookeeper.tree.nodes[_below(path, name)].children)}
            for name in node.children
        ],
    }


def _below(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _feed(on: HasFeed) -> Feed:
    assert on.feed is not None
    return on.feed


SIGHT_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/watch",
        "The rows of the dashboard; as server-sent events with Accept: text/event-stream: a snapshot, then "
        "what changes, at most five times a second.",
        get_dashboard_rows,
    ),
    Route(
        "GET",
        "/v1/history",
        "The rows at a past time of the last hour, if a client was connected then.",
        get_past_dashboard_rows,
        query=PastRowsQuery,
    ),
    Route(
        "GET",
        "/v1/zookeeper",
        "One znode: its data and the names of its children.",
        get_znode,
        query=ZnodeQuery,
    ),
)
