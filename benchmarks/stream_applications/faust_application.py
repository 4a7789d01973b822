"""The applications as faust-streaming writes them; its own Python runs this file, which imports nothing else."""

import sys
from datetime import timedelta

import faust

kind, servers, application, directory, guarantee, commit_ms, standbys, source, table, output = sys.argv[1:]
PARTITIONS = 4
MINUTE_MS = 60_000
RAW = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
app = faust.App(
    application,
    broker="kafka://" + servers.replace(",", ";kafka://"),
    store="memory://",
    topic_partitions=PARTITIONS,
    topic_allow_declare=True,
    web_enabled=False,
    datadir=directory,
    consumer_auto_offset_reset="earliest",
    processing_guarantee=guarantee,
    broker_commit_interval=int(commit_ms) / 1000,
    table_standby_replicas=int(standbys),
)
records = app.topic(source, **RAW)
results = app.topic(output, **RAW)

if kind == "counts":
    counts = app.Table("counts", default=int, partitions=PARTITIONS, key_type=bytes, value_type=int)

    @app.agent(records)
    async def count(stream):
        async for key, _ in stream.items():
            counts[key] += 1
            await results.send(key=key, value=b"%d" % counts[key])

elif kind == "windows":
    minutes = app.Table("minutes", default=int, partitions=PARTITIONS).tumbling(  # keys are JSON: key and window
        timedelta(minutes=1), expires=timedelta(days=1)
    )

    @app.agent(records)
    async def count(stream):
        async for event in stream.events():
            key, at_ms = event.key.decode(), round(event.message.timestamp * 1000)
            minutes[key] += 1
            await results.send(key=event.key, value=b"%d %d" % (at_ms - at_ms % MINUTE_MS, minutes[key].value()))

else:
    rows = app.Table("rows", partitions=PARTITIONS, key_type=bytes, value_type=str)

    @app.agent(app.topic(table, **RAW))
    async def keep(stream):
        async for key, row in stream.items():
            rows[key] = row.decode()

    @app.agent(records)
    async def join(stream):
        async for key, value in stream.items():
            row = rows.get(key)
            if row is not None:
                await results.send(key=key, value=value + b" " + row.encode())


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--without-web", "-l", "warn"]
    app.main()
