"""The applications as Quix Streams writes them; its own Python runs this file, which imports nothing else."""

import sys

from quixstreams import Application

kind, servers, application, directory, guarantee, commit_ms, _, source, table, output = sys.argv[1:]
MINUTE_MS = 60_000
TEXT = {"value_deserializer": "string", "value_serializer": "string"}
app = Application(
    broker_address=servers,
    consumer_group=application,
    auto_offset_reset="earliest",
    commit_interval=int(commit_ms) / 1000,
    state_dir=directory,
    processing_guarantee=guarantee.replace("_", "-"),
    consumer_poll_timeout=0.1,
    producer_extra_config={"partitioner": "murmur2_random"},
    loglevel="WARNING",
)
records = app.dataframe(app.topic(source, **TEXT))
results = app.topic(output, **TEXT)


def count(value, state):
    number = state.get("count", 0) + 1
    state.set("count", number)
    return str(number)


if kind == "counts":
    records = records.apply(count, stateful=True)
elif kind == "windows":
    records = records.tumbling_window(MINUTE_MS).count().current()
    records = records.apply(lambda window: f"{window['start']} {window['value']}")
else:
    rows = app.dataframe(app.topic(table, **TEXT))
    records = records.join_asof(rows, how="inner", on_merge=lambda value, row: f"{value} {row}")
records.to_topic(results)

if __name__ == "__main__":
    app.run()
