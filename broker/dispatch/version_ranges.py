"""Which versions are told and accepted, by who asks: clients as the profile says, this project's own clients KIP-253
besides, and nodes everything, for what they say to each other does not depend on what they look like.

Who somebody is, ApiVersions says (`client_software_name`, KIP-511). That opens no door: what only nodes may do is
refused to others by their rights, as on any broker.
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
    """What one kind of peers is told, and what is accepted of it."""

    advertised: VersionsByKey
    accepted: VersionsByKey


class PeerVersions:
    """The three kinds of peers of one node."""

    def __init__(self, profile: CompatibilityProfile, handled: Mapping[str, str]) -> None:
        """`handled`: API -> the versions of which the node has a handler."""
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
        """The audience of a peer that gives this name."""
        if software_name == NODE_SOFTWARE:
            return self.nodes
        return self.clients if software_name == CLIENT_SOFTWARE else self.others

    def accepted_for(self, software_name: str) -> VersionsByKey:
        """What is accepted of a peer that gives this name."""
        return self.ranges_for(software_name).accepted
