"""The applications as this package writes them: `python -m benchmarks.stream_applications.own KIND ...`."""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch import StreamsConfig, TimeWindows, Topology
from anabranch.clients.streams.serdes import TEXT
from anabranch.clients.streams.streams import Streams
from anabranch.runtime.runner import StopSignal, run

GUARANTEES = {"at_least_once": "at_least_once", "exactly_once": "exactly_once_v2"}


def counts(application: Topology, source: str, _: str, output: str) -> None:
    application.stream(source).count("counts").map_values(str).to(output, value=TEXT)


def windows(application: Topology, source: str, _: str, output: str) -> None:
    minutes = application.stream(source).windowed_by(TimeWindows(60_000)).count("minutes")
    minutes.map(lambda window, count: (window.key, f"{window.start_ms} {count}")).to(output, value=TEXT)


def join(application: Topology, source: str, table: str, output: str) -> None:
    rows = application.table(table, value=TEXT)
    application.stream(source, value=TEXT).join(rows, lambda value, row: f"{value} {row}").to(output, value=TEXT)


KINDS = {"counts": counts, "windows": windows, "join": join}


async def work(topology: Topology, config: StreamsConfig) -> None:
    stop = StopSignal()
    async with Streams(topology, config) as streams:
        await stop.wait(streams.wait_failed())


def main(words: list[str]) -> None:
    kind, servers, application, directory, guarantee, commit_ms, standbys, *topics = words
    topology = Topology()
    KINDS[kind](topology, *topics)
    config = StreamsConfig(
        application_id=application,
        bootstrap_servers=servers,
        state_dir=Path(directory),
        processing_guarantee=GUARANTEES[guarantee],
        commit_interval_ms=int(commit_ms),
        num_standby_replicas=int(standbys),
        session_timeout_ms=45_000,
    )
    run(lambda: work(topology, config), log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1:])
