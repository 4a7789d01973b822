"""The API versions that are advertised to and accepted from each kind of peer.

Clients get what the profile defines, this project's own clients KIP-253 besides. Nodes get everything, because requests
between nodes do not depend on the profile. ApiVersions carries the client's name and version (`client_software_name`,
KIP-511). The name grants no rights: requests between nodes need authorization, as on any broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.dispatch.request_context import version_range
from anabranch.protocol.connection import CLIENT_SOFTWARE, NODE_SOFTWARE
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.profiles.profile import CompatibilityProfile

VersionsByKey = Mapping[int, tuple[int, int]]
"""API key -> first and last version."""

FIRST_PRIVATE_KEY: Final = 2530


@value
class VersionRanges:
    """The versions advertised to one kind of peers, and those accepted from it."""

    advertised: VersionsByKey
    accepted: VersionsByKey


class PeerVersions:
    """The version ranges for the three kinds of peers of one node."""

    def __init__(self, profile: CompatibilityProfile, handled: Mapping[str, str]) -> None:
        """`handled`: API -> the versions for which the node has a handler."""
        whole = {BY_NAME[name].key: version_range(text) for name, text in handled.items()}
        shown, accepted = {}, {}
        for name in handled.keys() & profile.ranges.keys():
            key = BY_NAME[name].key
            first, last = version_range(profile.ranges[name])
            first, last = max(first, whole[key][0]), min(last, whole[key][1])
            if first <= last:
                shown[key] = first, last
                accepted[key] = max(first, profile.refused_below.get(name, first)), last
        own = {key: span for key, span in whole.items() if key >= FIRST_PRIVATE_KEY}
        self.clients = VersionRanges({**shown, **own}, {**accepted, **own})
        self.others = self.clients if profile.shows_own_apis else VersionRanges(shown, accepted)
        self.nodes = VersionRanges(whole, whole)

    def ranges_for(self, software_name: str) -> VersionRanges:
        """Return the ranges for a peer with this software name."""
        if software_name == NODE_SOFTWARE:
            return self.nodes
        return self.clients if software_name == CLIENT_SOFTWARE else self.others

    def accepted_for(self, software_name: str) -> VersionsByKey:
        """Return the versions accepted from a peer with this software name."""
        return self.ranges_for(software_name).accepted
