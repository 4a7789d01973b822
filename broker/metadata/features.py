"""The supported features of this node, and the finalized features of the cluster in `/feature` (KIP-584).

Code that uses a feature reads its `level`, which is 0 until a controller has finalized one. If a finalized level is not
supported, the node is too old for its cluster and must stop (`incompatible`). Sources: Kafka's `BrokerFeatures`,
`FinalizedFeatureChangeListener`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.profiles.profile import DEFAULT, profile_for
from anabranch.broker.tasks.supervised_task import OnFailure, log_failure
from anabranch.broker.tasks.znode_watch import ZnodeWatch
from anabranch.controller.candidacy import retry_connection_loss
from anabranch.controller.features import SUPPORTED
from anabranch.controller.model import Features
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.body import MalformedZnode
from anabranch.controller.zk.session import NoNode

if TYPE_CHECKING:
    from anabranch.broker.profiles.profile import CompatibilityProfile
    from anabranch.controller.zk.session import ZkSession

log: Final = logging.getLogger(__name__)


def supported_features(withheld: str, shown: CompatibilityProfile) -> dict[str, tuple[int, int]]:
    """The features that a node advertises, ours and its profile's: feature -> lowest and highest level."""
    every = {**SUPPORTED, **shown.supported_features}
    return {name: levels for name, levels in every.items() if name not in withheld.split(",")}


def at_first(release: CompatibilityProfile) -> dict[str, int]:
    """The feature levels that a new cluster finalizes if all its brokers support them."""
    ours = {name: most for name, (_, most) in SUPPORTED.items()}
    return {**ours, **{name: level for name, level in release.finalized_features.items() if level > 0}}


def incompatible(features: Features, own: Mapping[str, tuple[int, int]]) -> list[str]:
    """List the finalized features whose level is outside the supported range."""
    wrong = []
    for name, level in features.levels.items():
        least, most = own.get(name, (0, -1))
        if not least <= level <= most:
            wrong.append(f"{name} at level {level}")
    return wrong


class FinalizedFeatures:
    """Watches `/feature` under the current ZooKeeper session."""

    def __init__(self, withheld: str = "", shown: CompatibilityProfile | None = None) -> None:
        self.supported = supported_features(withheld, shown or profile_for(DEFAULT))
        self.present = Features()
        self.too_old: Callable[[list[str]], None] = lambda names: log.error("unsupported features: %s", names)
        """Called with the finalized features that this node does not support."""
        self.died: OnFailure = log_failure
        self._session: ZkSession | None = None
        self._watch = ZnodeWatch("finalized features", "features", self._read)

    def level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it has none."""
        return self.present.levels.get(name, 0)

    async def watch(self, session: ZkSession) -> None:
        """Read `/feature`, and watch it under this session."""
        await self.stop()
        self._session = session
        await self._read()
        self._watch.start(self.died)

    async def stop(self) -> None:
        """Stop watching."""
        await self._watch.stop()

    async def _read(self) -> None:
        session = self._session
        assert session is not None, "features are read with a session"
        while True:
            try:
                data, stat = await retry_connection_loss(lambda: session.get(paths.FEATURE, self._watch.on_change))
                break
            except NoNode:
                if await retry_connection_loss(lambda: session.exists(paths.FEATURE, self._watch.on_change)) is None:
                    self.present = Features()
                    return
        try:
            self.present = Features(znodes.decode_feature(paths.FEATURE, data), stat.version)
        except MalformedZnode as error:
            log.error("cannot read the finalized features, keeping the previous ones: %s", error)
            return
        wrong = incompatible(self.present, self.supported)
        if wrong:
            self.too_old(wrong)
