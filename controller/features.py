"""Finalized features: levels that every broker supports (KIP-584), kept in Kafka's znode `/feature`.

A broker registers which levels of a feature it supports. An administrator finalizes one level, and the controller
writes it if every live broker supports it; the znode's version is the epoch by which nodes order them. A feature that
is not finalized must not be used. Kafka's ZooKeeper mode knows no feature; the rules are those of its
`KafkaController.validateFeatureUpdate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.controller import effects
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.controller.effects import Effect
    from anabranch.controller.events import FeaturesRequested, FeaturesWritten
    from anabranch.controller.model import Broker
    from anabranch.controller.state import ClusterState
    from anabranch.protocol.apis.update_features import FeatureUpdateKey

RESHARD: Final = "reshard.version"
"""Level 1: every broker compares the generations of batches with its own, so topics may be resized in order (R17)."""
SUPPORTED: Final[dict[str, tuple[int, int]]] = {RESHARD: (1, 1)}
"""Supported features: feature -> lowest and highest level."""

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
ALL_FAILED: Final = "The update failed for all features since the following feature had an error: "


def supported_by(broker: Broker, name: str, level: int) -> bool:
    """Whether a broker has registered support for this level."""
    return any(one == name and least <= level <= most for one, least, most in broker.features)


def check_reshard(state: ClusterState) -> None:
    """Raise UNSUPPORTED_VERSION unless every broker is known to fence batches of older generations (R17)."""
    behind = sorted(broker.id for broker in state.brokers.values() if not supported_by(broker, RESHARD, 1))
    if behind:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Brokers {behind} do not support {RESHARD} 1: upgrade or remove them before a topic is resized.",
        )
    if state.features.levels.get(RESHARD, 0) < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{RESHARD} is not finalized: `anabranch features upgrade {RESHARD}` once no broker will be downgraded.",
        )


def bootstrap(state: ClusterState) -> list[Effect]:
    """Finalize the configured levels in a new cluster, as far as all its brokers support them."""
    levels = {
        name: level
        for name, level in state.settings.first_features.items()
        if all(supported_by(broker, name, level) for broker in state.brokers.values())
    }
    # With eligible leader replicas, Kafka's controller stores min.insync.replicas as a default for all brokers.
    enough = {"min.insync.replicas": str(state.settings.min_insync_replicas)} if levels.get(ELIGIBLE_LEADERS) else {}
    return [effects.WriteFeatures(levels, -1, configs=enough)]


def ask(state: ClusterState, event: FeaturesRequested) -> list[Effect]:
    """Check each update on its own, and write all that are allowed at once."""
    if event.together:
        return ask_together(state, event)
    levels = dict(state.features.levels)
    results: dict[str, tuple[ErrorCode, str]] = {}
    for update in event.request.feature_updates:
        try:
            level = check_update(state, update)
        except KafkaError as error:
            results[update.feature] = (error.code, error.message)
            continue
        results[update.feature] = (ErrorCode.NONE, "")
        levels.pop(update.feature, None)
        if level is not None:
            levels[update.feature] = level
    if event.request.validate_only or levels == state.features.levels:
        return [effects.SendReply(event.token, results)]
    return [effects.WriteFeatures(levels, state.features.epoch, event.token, results)]


def ask_together(state: ClusterState, event: FeaturesRequested) -> list[Effect]:
    """Check all updates by the rules of Kafka's KRaft controllers, and write all of them or none (KIP-1022)."""
    levels = dict(state.features.levels)
    for update in event.request.feature_updates:
        reason = objection(state, update)
        if reason:
            text = f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
            return [effects.SendReply(event.token, KafkaError(ErrorCode.INVALID_UPDATE_VERSION, ALL_FAILED + text))]
        levels.pop(update.feature, None)
        if update.max_version_level > 0:
            levels[update.feature] = update.max_version_level
    results = {update.feature: (ErrorCode.NONE, "") for update in event.request.feature_updates}
    if event.request.validate_only or levels == state.features.levels:
        return [effects.SendReply(event.token, results)]
    return [effects.WriteFeatures(levels, state.features.epoch, event.token, results)]


def objection(state: ClusterState, update: FeatureUpdateKey) -> str:
    """Return a KRaft controller's error message for an update; empty if it is allowed."""
    name, level, present = update.feature, update.max_version_level, state.features.levels.get(update.feature, 0)
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for broker in state.brokers.values():
        who = f"Local controller {broker.id}" if broker.id == state.settings.node_id else f"Broker {broker.id}"
        span = next(((least, most) for known, least, most in broker.features if known == name), None)
        if span is None:
            return f"{who} does not support this feature."
        if level and not span[0] <= level <= span[1]:
            return f"{who} only supports versions {span[0]}-{span[1]}"
    if level < present and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > present and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return kept_by_resizes(state) if name == RESHARD and not level else ""


def kept_by_resizes(state: ClusterState) -> str:
    """Return why the feature that resizes need must stay finalized; empty if it need not."""
    resized = sorted(topic.name for topic in state.topics.values() if topic.body.generation > 0)
    return f"Resized topics need {RESHARD}: {', '.join(resized[:10])}." if resized else ""


def on_written(state: ClusterState, event: FeaturesWritten) -> list[Effect]:
    """Adopt the znode's levels. Fail an admin's request that another write overtook."""
    state.features = event.features
    if event.token is None:
        return []
    results = dict(event.results)
    if event.features.levels != event.requested:
        failed = (ErrorCode.FEATURE_UPDATE_FAILED, "")
        results = {name: failed if known[0] == ErrorCode.NONE else known for name, known in results.items()}
    return [effects.SendReply(event.token, results)]


def check_update(state: ClusterState, update: FeatureUpdateKey) -> int | None:
    """Return the level that an update sets, None if it withdraws the feature. Raises INVALID_REQUEST."""
    name, level = update.feature, update.max_version_level
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    present = state.features.levels.get(name)
    if not name:
        raise refusal("Feature name can not be empty.")
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise refusal("Received unknown upgrade type.")
    if level < 1:
        if kind == UPGRADE:
            raise refusal(f"Can not provide versionLevel: {level} less than 1 without a downgrade type in the request.")
        if present is None:
            raise refusal("Can not delete non-existing finalized feature.")
        kept = kept_by_resizes(state) if name == RESHARD else ""
        if kept:
            raise refusal(kept)
        return None
    if present is not None:
        if level == present:
            what = "downgrade" if kind == SAFE_DOWNGRADE else "upgrade"
            raise refusal(f"Can not {what} a finalized feature from existing versionLevel:{level} to the same value.")
        if level < present and kind != SAFE_DOWNGRADE:
            raise refusal(f"Can not downgrade from versionLevel:{present} to {level} without a downgrade type of SAFE.")
        if level > present and kind != UPGRADE:
            raise refusal(f"A downgrade to versionLevel:{level} would be an upgrade of {present}.")
    registered = [
        (least, most) for broker in state.brokers.values() for one, least, most in broker.features if one == name
    ]
    if name not in SUPPORTED and not registered:
        raise refusal("Could not apply finalized feature update because the provided feature is not supported.")
    least, most = SUPPORTED.get(name) or (min(one for one, _ in registered), max(one for _, one in registered))
    if not least <= level <= most:
        raise refusal(f"versionLevel:{level} is outside the supported levels {least} to {most}.")
    behind = [broker.id for broker in state.brokers.values() if not supported_by(broker, name, level)]
    if behind:
        raise refusal(f"Brokers were found to have incompatible versions for the feature: {behind}")
    return level


def refusal(reason: str) -> KafkaError:
    """Return INVALID_REQUEST with the reason."""
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
