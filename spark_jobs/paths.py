"""Finds the deliveries of a key around a violation, before and after it in the audit topic.

The state of the checks keeps only the newest delivery of a key. After a violation the audit topic is read once more,
for the keys of the reported violations, in the order in which deliveries were stored.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.protocol import audit_mark
from anabranch.spark_jobs import events
from anabranch.spark_jobs.events import Events
from anabranch.spark_jobs.verdict import Event

AROUND: Final = 4
"""Number of deliveries shown before, and after."""
STORIES_MAX: Final = 20
"""Maximum number of violations with deliveries: each of their keys is searched in the whole topic."""
SCHEMA: Final = "partition int, offset bigint, place int, name string, detail string"
_ROW: Final = pa.schema(
    [
        *(("partition", pa.int32()), ("offset", pa.int64()), ("place", pa.int32())),
        *(("name", pa.string()), ("detail", pa.string())),
    ]
)
Name = tuple[str, str, str]
"""Group, topic, and the key as in stories."""


def around(records: DataFrame, stories: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return, for each of the first stories, the deliveries of its key around it; `records` are the audit topic's."""
    first_stories = stories[:STORIES_MAX]
    key_names = frozenset(_name(story) for story in first_stories if story.get("key") is not None)
    if not key_names:
        return []
    chosen = records.select("key", "value", "partition", "offset")
    rows = chosen.mapInArrow(functools.partial(_deliveries, key_names), SCHEMA).collect()
    ways: dict[Name, list[dict[str, Any]]] = {}
    for row in sorted(rows):
        group, topic, key = json.loads(row["name"])
        ways.setdefault((group, topic, key), []).append(json.loads(row["detail"]))
    return [_cut(ways.get(_name(story), ()), story) if story.get("key") is not None else [] for story in first_stories]


def _name(story: Mapping[str, Any]) -> Name:
    return story["group"], story["topic"], str(story.get("key"))


def _cut(path: Sequence[dict[str, Any]], story: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the deliveries around the story's; the last ones if it has none."""
    guilty = story.get("delivered") or story.get("next") or story.get("before")
    at = next((n for n, one in enumerate(path) if one == guilty), len(path) - 1)
    return list(path[max(0, at - AROUND) : at + AROUND + 1])


def _deliveries(key_names: frozenset[Name], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = ("key", "value", "partition", "offset")
    for batch in batches:
        rows = []
        for key, value, partition, offset in zip(*(batch[name].to_pylist() for name in names), strict=True):
            if value is not None:
                found = events.read([value], [key])
                rows += [(partition, offset, *one) for one in _of_keys(found, key_names)]
        yield pa.RecordBatch.from_pylist([dict(zip(_ROW.names, row, strict=True)) for row in rows], _ROW)


def _of_keys(found: Events, key_names: frozenset[Name]) -> Iterator[tuple[int, str, str]]:
    for place, key in enumerate(found.keys()):
        if key is None:
            continue
        sender = found.senders[int(found.sender[place])]
        name = (sender.group, sender.topic, key.decode(errors="backslashreplace"))
        if name in key_names:
            sequence = int(found.sequence[place])
            event = Event(
                group=sender.group,
                topic=sender.topic,
                producer=int(found.producer[place]),
                key=key,
                sequence=-1 if sequence == audit_mark.NO_SEQUENCE else sequence,
                partition=int(found.partition[place]),
                offset=int(found.offset[place]),
                generation=int(found.generation[place]),
                time_ms=int(found.time_ms[place]),
                fingerprint=0,
                member=sender.member,
                incarnation=sender.incarnation,
                group_generation=sender.group_generation,
            )
            yield place, json.dumps(name), json.dumps(event.place())
