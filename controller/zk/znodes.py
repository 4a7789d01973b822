"""Converts znode bodies to and from model values, with all JSON field names (Kafka 3.9's layout: kafka.zk.ZkData).

Kafka's fields keep Kafka's names and types, even odd ones (longs as strings). This project's fields are added with
defaults, so that a stock tool's topic loads, and a stock tool can read ours. Every decoder raises MalformedZnode.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from anabranch.controller.model import Broker, Endpoint, LeaderAndIsr, Plan, Retired, TopicBody
from anabranch.controller.zk.body import Body, MalformedZnode, dump
from anabranch.protocol.host_port import format_host_port, parse_host_port
from anabranch.protocol.values import value
from anabranch.protocol.wire import ZERO_UUID

PLAINTEXT: Final = "PLAINTEXT"


def uuid_to_text(uuid: bytes) -> str:
    """Format sixteen bytes as Kafka does: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Parse sixteen bytes. Raises ValueError unless these are 22 characters of base64."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a 22-character id")
    return uuid


def encode_broker(broker: Broker, *, timestamp_ms: int) -> bytes:
    """Encode /brokers/ids/N, version 5. `host` and `port` are those of the first PLAINTEXT endpoint, for old
    readers.
    """
    plain = next((end for end in broker.endpoints if end.security_protocol == PLAINTEXT), None)
    body: dict[str, Any] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [f"{end.listener}://{format_host_port(end.host, end.port)}" for end in broker.endpoints],
        "listener_security_protocol_map": {end.listener: end.security_protocol for end in broker.endpoints},
        "features": {name: {"min_version": least, "max_version": most} for name, least, most in broker.features},
    }
    if broker.rack is not None:
        body["rack"] = broker.rack
    return dump(body)


def decode_broker(path: str, data: bytes, *, czxid: int) -> Broker:
    """Decode a registration of version 1 (host and port only) to 5. The broker epoch is the znode's czxid."""
    body = Body.parse(path, data)
    last = path.rpartition("/")[2]
    if not last.isdecimal():
        raise MalformedZnode(path, f"{last!r} is not a broker id")
    rack = None if body.fields.get("rack") is None else body.text("rack")
    return Broker(int(last), czxid, tuple(_endpoints(body)), rack, _features(body.section("features")))


def _features(section: Body | None) -> tuple[tuple[str, int, int], ...]:
    names = sorted(section.fields) if section else []
    found = [(name, section.section(name)) for name in names if section]
    return tuple((name, one.integer("min_version", 0), one.integer("max_version")) for name, one in found if one)


def _endpoints(body: Body) -> list[Endpoint]:
    urls = body.fields.get("endpoints")
    if urls is None:
        return [Endpoint(PLAINTEXT, body.text("host"), body.integer("port"))]
    if not isinstance(urls, list):
        raise body.wrong("endpoints", "a list", urls)
    protocols = body.section("listener_security_protocol_map")
    endpoints = []
    for url in urls:
        listener, slashes, address = str(url).partition("://")
        try:
            host, port = parse_host_port(address)
        except ValueError:
            slashes = ""
        if not slashes:
            raise body.wrong("endpoints", "LISTENER://host:port", url)
        security = protocols.text(listener, listener) if protocols else listener
        endpoints.append(Endpoint(listener, host, port, security))
    return endpoints


@value
class ControllerBody:
    """The body of /controller, with its address, which Kafka lacks. `host` "" and `port` -1: unknown."""

    broker_id: int
    host: str = ""
    port: int = -1
    timestamp_ms: int = -1


def encode_controller(body: ControllerBody) -> bytes:
    """Encode /controller, version 2."""
    return dump(
        {
            "version": 2,
            "brokerid": body.broker_id,
            "timestamp": str(body.timestamp_ms),
            "kraftControllerEpoch": -1,
            "host": body.host,
            "port": body.port,
        }
    )


def decode_controller(path: str, data: bytes) -> ControllerBody:
    """Decode versions 1 and 2."""
    body = Body.parse(path, data)
    return ControllerBody(
        body.integer("brokerid"), body.text("host", ""), body.integer("port", -1), body.long_text("timestamp", -1)
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode /controller_epoch: decimal text."""
    return str(epoch).encode()


def decode_controller_epoch(path: str, data: bytes) -> int:
    """Decode the epoch of the newest controller."""
    try:
        return int(data)
    except ValueError:
        raise MalformedZnode(path, f"should be a decimal number, not {data[:80]!r}") from None


def encode_topic(topic: TopicBody) -> bytes:
    """Encode /brokers/topics/T: Kafka's version 3, KIP-253's two counts, and the history of resizes (R1, R3, R13)."""
    body: dict[str, Any] = {
        "version": 3,
        "topic_id": uuid_to_text(topic.topic_id),
        "partitions": _replicas(topic.assignment),
        "adding_replicas": {index: ids for index, ids in _replicas(topic.adding_replicas).items() if ids},
        "removing_replicas": {index: ids for index, ids in _replicas(topic.removing_replicas).items() if ids},
        "initial_partition_count": topic.initial_partition_count,
        "undeleted_partition_count": topic.undeleted_partition_count,
        "base": topic.base,
        "generation": topic.generation,
        "history": [list(entry) for entry in topic.history],
        "retired": {str(index): _encode_retired(past) for index, past in sorted(topic.retired.items())},
    }
    if topic.has_generations:
        body["stamped"] = True
    if topic.plan is not None:
        body["plan"] = {"generation": topic.plan.generation, "from": topic.plan.before, "to": topic.plan.after}
    return dump(body)


def decode_topic(path: str, data: bytes) -> TopicBody:
    """Decode versions 1 (only the assignment) to 3."""
    body = Body.parse(path, data)
    if body.section("partitions") is None:
        raise body.wrong("partitions", "there", None)
    return TopicBody(
        topic_id=_topic_id(body),
        assignment=body.replicas("partitions"),
        adding_replicas=body.replicas("adding_replicas"),
        removing_replicas=body.replicas("removing_replicas"),
        initial_partition_count=body.integer("initial_partition_count", -1),
        undeleted_partition_count=body.integer("undeleted_partition_count", -1),
        base=body.integer("base", -1),
        generation=body.integer("generation", 0),
        history=body.rising_pairs("history"),
        plan=_plan(body.section("plan")),
        retired=_retired_from(body),
        has_generations=body.boolean("stamped", False),
    )


def _topic_id(body: Body) -> bytes:
    if "topic_id" not in body.fields:
        return ZERO_UUID
    text = body.text("topic_id")
    try:
        return uuid_from_text(text)
    except ValueError:
        raise body.wrong("topic_id", "a 22-character id", text) from None


def _plan(body: Body | None) -> Plan | None:
    return Plan(body.integer("generation"), body.integer("from"), body.integer("to")) if body else None


def _replicas(assignment: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(index): list(ids) for index, ids in sorted(assignment.items())}


def _encode_retired(past: Retired) -> dict[str, Any]:
    return {"leader_epoch": past.leader_epoch, "end_offset": past.end_offset, "gen_start": list(past.gen_start)}


def _retired_from(body: Body) -> dict[int, Retired]:
    section = body.section("retired")
    retired: dict[int, Retired] = {}
    for index, key in sorted(body.indexes("retired").items()):
        past = section.section(key) if section else None
        if past is not None:
            retired[index] = Retired(
                past.integer("leader_epoch"), past.integer("end_offset"), past.rising_pairs("gen_start")
            )
    return retired


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """Encode /brokers/topics/T/partitions/P/state: Kafka's fields, generation and cuts in one write (R2)."""
    body: dict[str, Any] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
        "generation": state.generation,
        "gen_start": [list(entry) for entry in state.gen_start],
        "sealed": state.sealed,
    }
    if state.leader_recovery_state:
        body["leader_recovery_state"] = state.leader_recovery_state  # absent means RECOVERED
    if state.leader_epoch_after_creation:
        body["leaderEpochAfterCreation"] = {str(index): epoch for index, epoch in state.leader_epoch_after_creation}
    if state.leader_epoch_before_deletion:
        body["leaderEpochBeforeDeletion"] = {str(index): epoch for index, epoch in state.leader_epoch_before_deletion}
    return dump(body)


def decode_partition_state(path: str, data: bytes) -> LeaderAndIsr:
    """Decode a state; that of a stock controller has generation 0."""
    body = Body.parse(path, data)
    return LeaderAndIsr(
        leader=body.integer("leader"),
        leader_epoch=body.integer("leader_epoch"),
        isr=body.integers("isr"),
        controller_epoch=body.integer("controller_epoch"),
        leader_recovery_state=body.integer("leader_recovery_state", 0),
        generation=body.integer("generation", 0),
        gen_start=body.rising_pairs("gen_start"),
        sealed=body.boolean("sealed", False),
        leader_epoch_after_creation=body.epochs("leaderEpochAfterCreation"),
        leader_epoch_before_deletion=body.epochs("leaderEpochBeforeDeletion"),
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode /config/topics/T and the like."""
    return dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode the overrides; an empty znode has none."""
    if not data:
        return {}
    config = Body.parse(path, data).section("config")
    return {name: config.text(name) for name in config.fields} if config else {}


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode /cluster/id; its version is a string."""
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Decode the id of the cluster."""
    return Body.parse(path, data).text("id")


def encode_feature(levels: Mapping[str, int]) -> bytes:
    """Encode /feature, version 2, enabled: {feature: highest finalized level}."""
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return dump({"version": 2, "status": 1, "features": features})


def decode_feature(path: str, data: bytes) -> dict[str, int]:
    """Decode {feature: highest finalized level}, empty when features are disabled."""
    body = Body.parse(path, data)
    features = body.section("features")
    if features is None or body.integer("status", 0) != 1:
        return {}
    sections = {name: features.section(name) for name in features.fields}
    return {name: levels.integer("max_version_level") for name, levels in sections.items() if levels}


@value
class ProducerIdBlock:
    """The body of /latest_producer_id_block: the block claimed last, both ends inclusive."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Encode version 1; its longs are strings."""
    ends = {"block_start": str(block.first), "block_end": str(block.last)}
    return dump({"version": 1, "broker": block.broker_id, **ends})


def decode_producer_id_block(path: str, data: bytes) -> ProducerIdBlock | None:
    """Decode the block; None for an empty znode: none was claimed yet."""
    if not data:
        return None
    body = Body.parse(path, data)
    return ProducerIdBlock(body.integer("broker"), body.long_text("block_start"), body.long_text("block_end"))


def encode_config_change(entity_path: str) -> bytes:
    """Encode /config/changes/config_change_N: the entity to read again, such as "topics/T"."""
    return dump({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Decode the entity's path below /config."""
    return Body.parse(path, data).text("entity_path")
