"""Rules for producers without generations on a resized topic (R16).

Such producers hash with the partition count of their metadata; nothing orders their records after a resize behind those
before it. They are therefore refused where a producer requires order. `reshard.legacy.producers` sets this for a topic:

    auto      they are refused once the topic holds batches with generations; until then it grows as in Kafka.
              `enable.ordered.delivery` set on the topic asks for order (true), or for none (false)
    refuse    they are refused
    allow     they are let in, and the order of their keys is not kept
    verify    a batch is let in if all its keys lie in this partition in the topic's present generation

This holds for all partitions of the topic, also those that no resize has affected: their old keys may be hashed
elsewhere from now on. A merged partition accepts no records. If `verify` meets a resize that is not published yet, the
place of a key is unknown, and the client has to retry.

Each error text names the property and the page that explains it, because the error code cannot. Clients that show texts
prefer that of a record (Produce v8+), so this one names them too. Few clients show texts, and with acks=0 there is no
response, so the broker also logs it, once for each topic and client.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from anabranch.broker.metadata.metadata_cache import TopicImage
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address
from anabranch.protocol.records.keys import iter_keys
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anabranch.broker.config.broker_settings import TopicConfig
    from anabranch.broker.metadata.metadata_cache import MetadataCache
    from anabranch.broker.replication.partition import Partition
    from anabranch.broker.replication.topics_with_generations import TopicsWithGenerations
    from anabranch.protocol.records.batch import Buffer

log = logging.getLogger(__name__)

AUTO: Final = "auto"
ALLOW: Final = "allow"
VERIFY: Final = "verify"
PROPERTY: Final = "reshard.legacy.producers"
PAGE: Final = "docs/guarantees.md#producers"

KEYS_AT_ONCE: Final = 2000
"""Keys between two yields to the loop: some three milliseconds."""
NAMED_MAX: Final = 100
"""The most records that one refusal names."""
LOGGED_MAX: Final = 1000
"""The most remembered pairs of topic and client for which the refusal was logged."""


class LegacyRefused(KafkaError):
    """Raised when a producer without generations is refused; `record_errors` names the records (Produce v8+)."""

    def __init__(self, topic: str, message: str, record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, message)
        self.topic = topic
        self.record_errors = record_errors or []


@value
class KeyPlacementCheck:
    """The result of checking that all keys of a batch belong to its partition, for one state of the topic."""

    topic: TopicImage
    refusal: KafkaError | None = None

    def is_of(self, topic: TopicImage | None) -> bool:
        """Return whether the topic is still the same, with the same partitions."""
        looked_at = self.topic.topic_id, self.topic.generation
        return topic is not None and looked_at == (topic.topic_id, topic.generation)


class LegacyProducers:
    """The rules of the topics that this broker leads."""

    def __init__(
        self,
        metadata: MetadataCache,
        topic_config: Callable[[str], TopicConfig],
        with_generations: TopicsWithGenerations,
    ) -> None:
        self._metadata = metadata
        self._topic_config = topic_config
        self._with_generations = with_generations
        self._logged: set[tuple[str, str]] = set()

    def check(self, partition: Partition, fit: KeyPlacementCheck | None) -> None:
        """Raise unless a batch without a generation may be appended; `fit` is the result for `verify`, if required."""
        topic = self._topic(partition)
        published = 0 if topic is None else topic.generation
        if partition.generation == 0 and published <= 0:
            return
        policy = self._topic_config(partition.topic).reshard_legacy_producers
        name = f"{partition.topic}-{partition.index}"
        if partition.sealed:
            text = (
                f"{name} is retiring: producers without generations are refused until it is drained and removed, "
                f"whatever {PROPERTY} is: {PAGE}"
            )
            raise LegacyRefused(partition.topic, text)
        if policy == ALLOW or (policy == AUTO and not self._with_generations.is_known(partition)):
            return
        if policy != VERIFY:
            raise LegacyRefused(partition.topic, _refusal(partition.topic, policy))
        if fit is None or not fit.is_of(topic) or partition.generation > published:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is being resized: try again")
        if fit.refusal is not None:
            raise fit.refusal

    def verifies(self, name: str) -> TopicImage | None:
        """Return the topic if keys of producers without generations have to be verified."""
        topic = self._metadata.topic(name)
        if topic is None or topic.generation <= 0 or topic.base < 1:
            return None
        return topic if self._topic_config(name).reshard_legacy_producers == VERIFY else None

    def warn(self, error: LegacyRefused, client_id: str, peer: str, acks: int) -> None:
        """Log the first refusal of a client."""
        known = (error.topic, client_id)
        if known in self._logged:
            return
        if len(self._logged) >= LOGGED_MAX:
            self._logged.clear()
        self._logged.add(known)
        lost = "; with acks=0 the producer gets no error" if acks == 0 else ""
        log.warning("refusing batches of %s (%s): %s%s", client_id or "a client", peer, error.message, lost)

    def _topic(self, partition: Partition) -> TopicImage | None:
        """Return the partition's published topic, unless it is an earlier one of the same name."""
        topic = self._metadata.topic(partition.topic)
        return topic if topic is not None and topic.topic_id == partition.topic_id else None


def _refusal(topic: str, policy: str) -> str:
    why = (
        "a producer with generations has written to it, so it keeps the order of keys"
        if policy == AUTO
        else "it keeps the order of keys"
    )
    return (
        f"{topic} was resized, and {why}, which this producer cannot, as it sends no generation. "
        f"{PROPERTY}={VERIFY}, set on the topic, lets in batches whose keys lie where linear hashing puts them; "
        f"{PROPERTY}={ALLOW} lets in everything and gives up the order: {PAGE}"
    )


def misplaced_keys(content: Buffer, count: int, index: int, topic: TopicImage) -> Iterator[tuple[int, int] | None]:
    """Yield (record, its key's partition) for each of `count` records whose key does not belong to partition `index`.

    Yields None at intervals, so that the caller can yield to the loop. Raises DecodeError.
    """
    places = partitions_of_key(topic.base, topic.history[-1][1])
    period = len(places)
    for record, key in enumerate(iter_keys(content, count)):
        if key is not None and (home := places[murmur2(key) % period]) != index:
            yield record, home
        if record % KEYS_AT_ONCE == KEYS_AT_ONCE - 1:
            yield None


@lru_cache(maxsize=16)
def partitions_of_key(base: int, count: int) -> tuple[int, ...]:
    """Return the partition of each key hash modulo the length: addresses repeat after twice the present level."""
    return tuple(address(residue, base, count) for residue in range(base << (count // base).bit_length()))


def placement_check(topic: TopicImage, index: int, found: list[tuple[int, int]], total: int) -> KeyPlacementCheck:
    """Return the check's result: `total` is the count of misplaced records, `found` has the first ones."""
    if not total:
        return KeyPlacementCheck(topic)
    record, home = found[0]
    count = topic.history[-1][1]
    text = (
        f"{topic.name}-{index}: {total} records have keys of other partitions, such as record {record} with a "
        f"key of partition {home}: {count} partitions of base {topic.base} (linear hashing); "
        f"{PROPERTY}={VERIFY} refuses them: {PAGE}"
    )
    errors = [
        (one, f"its key belongs to partition {right} of {topic.name}; {PROPERTY}={VERIFY} refuses it: {PAGE}")
        for one, right in found
    ]
    return KeyPlacementCheck(topic, LegacyRefused(topic.name, text, errors))


def unreadable(topic: TopicImage, index: int, reason: DecodeError) -> KeyPlacementCheck:
    """Return the result for a batch whose keys cannot be read."""
    text = f"{topic.name}-{index}: cannot read the keys, which {PROPERTY}={VERIFY} requires ({PAGE}): {reason}"
    return KeyPlacementCheck(topic, KafkaError(ErrorCode.INVALID_RECORD, text))
