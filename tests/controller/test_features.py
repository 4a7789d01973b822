"""Valid feature levels, and the level that a resize needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.controller import features
from anabranch.controller.effects import Effect, SendReply, WriteFeatures
from anabranch.controller.events import FeaturesRequested
from anabranch.controller.features import RESHARD, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from anabranch.controller.model import Features, Topic
from anabranch.controller.settings import ControllerSettings
from anabranch.controller.state import ClusterState
from anabranch.controller.topic_admin import new_topic
from anabranch.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.controller.world import broker


def state(level: int | None = None, *, old_broker: bool = False) -> ClusterState:
    known = ClusterState(ControllerSettings(node_id=1), 1)
    known.features = Features({} if level is None else {RESHARD: level}, 0)
    known.brokers = {1: broker(1, 1), 2: replace(broker(2, 2), features=() if old_broker else broker(2, 2).features)}
    return known


def update(level: int, kind: int = UPGRADE, name: str = RESHARD) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)


@pytest.mark.parametrize(
    ("present", "asked", "reason"),
    [
        (None, update(1, name=""), "can not be empty"),
        (None, update(1, kind=9), "unknown upgrade type"),
        (1, update(0), "without a downgrade type"),
        (None, update(0, SAFE_DOWNGRADE), "non-existing"),
        (1, update(1), "Can not upgrade .* to the same value"),
        (1, update(1, SAFE_DOWNGRADE), "Can not downgrade .* to the same value"),
        (2, update(1, UNSAFE_DOWNGRADE), "without a downgrade type of SAFE"),
        (1, update(2, SAFE_DOWNGRADE), "would be an upgrade of 1"),
        (None, update(1, name="unheard.of"), "not supported"),
        (None, update(2), "outside the supported levels 1 to 1"),
    ],
)
def test_invalid_feature_update_is_refused(present: int | None, asked: FeatureUpdateKey, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        features.check_update(state(present), asked)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_valid_feature_update_is_accepted() -> None:
    assert features.check_update(state(), update(1)) == 1
    assert features.check_update(state(1), update(0, SAFE_DOWNGRADE)) is None
    assert features.check_update(state(2), update(1, SAFE_DOWNGRADE)) == 1


def ask_together(known: ClusterState, *updates: FeatureUpdateKey) -> Effect:
    (effect,) = features.ask(known, FeaturesRequested(7, UpdateFeaturesRequest(feature_updates=list(updates)), True))
    return effect


@pytest.mark.parametrize(
    ("present", "asked", "reason"),
    [
        (None, update(1, kind=9), "does not support the given upgrade type"),
        (None, update(-1, SAFE_DOWNGRADE), "cannot be less than 0"),
        (None, update(1, name="unheard.of"), "Local controller 1 does not support"),
        (None, update(2), "only supports versions 1-1"),
        (1, update(0), "Can't downgrade the version"),
        (None, update(1, UNSAFE_DOWNGRADE), "Can't downgrade to a newer version"),
    ],
)
def test_invalid_update_of_several_features_is_refused(
    present: int | None, asked: FeatureUpdateKey, reason: str
) -> None:
    effect = ask_together(state(present), asked)
    assert isinstance(effect, SendReply) and isinstance(effect.response, KafkaError)
    assert effect.response.code is ErrorCode.INVALID_UPDATE_VERSION and reason in effect.response.message


@pytest.mark.parametrize(
    ("present", "asked", "then"),
    [
        (None, update(1), {RESHARD: 1}),
        (1, update(0, SAFE_DOWNGRADE), {}),
        (1, update(0, UNSAFE_DOWNGRADE), {}),
        (2, update(1, SAFE_DOWNGRADE), {RESHARD: 1}),
    ],
)
def test_valid_update_of_several_features_is_written(
    present: int | None, asked: FeatureUpdateKey, then: dict[str, int]
) -> None:
    effect = ask_together(state(present), asked)
    assert effect == WriteFeatures(then, 0, 7, {RESHARD: (ErrorCode.NONE, "")})


def test_feature_stays_finalized_while_topics_are_resized() -> None:
    known = state(1)
    known.topics["t"] = Topic("t", replace(new_topic(bytes(16), {0: (1,)}), generation=1), 0, {})
    effect = ask_together(known, update(0, SAFE_DOWNGRADE))
    assert isinstance(effect, SendReply) and "Resized topics need reshard.version: t." in effect.response.message
    known.features = Features({RESHARD: 1, "other": 1}, 0)
    known.brokers = {1: replace(broker(1, 1), features=(("other", 0, 1),))}
    assert isinstance(ask_together(known, update(0, SAFE_DOWNGRADE, "other")), WriteFeatures)


def test_level_unsupported_by_a_broker_is_not_finalized() -> None:
    behind = state(old_broker=True)
    with pytest.raises(KafkaError, match=r"incompatible versions for the feature: \[2\]"):
        features.check_update(behind, update(1))
    assert features.bootstrap(behind) == [WriteFeatures({}, -1)]
    assert features.bootstrap(state()) == [WriteFeatures({RESHARD: 1}, -1)]


def test_r17_resize_needs_every_broker_and_finalized_level() -> None:
    features.check_reshard(state(1))
    for known, says in ((state(), "is not finalized"), (state(1, old_broker=True), r"Brokers \[2\] do not support")):
        with pytest.raises(KafkaError, match=says) as refused:
            features.check_reshard(known)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
