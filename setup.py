"""The build step beside pyproject.toml: `ANABRANCH_COMPILE=1 python -m build --wheel` compiles hot modules with mypyc.

The wheel has each compiled module and its source. Tracebacks show lines of the source, and Python imports the source if
the compiled module is deleted. Without the variable, and in an editable installation, nothing is compiled. The list
comes from measurements (docs/performance-log.md, "Compiled").
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from setuptools import setup

COMPILE: Final = os.environ.get("ANABRANCH_COMPILE", "") not in ("", "0")
MYPY: Final = "mypy>=2.4,<3"
HOT: Final = (
    "protocol/codec",
    "protocol/connection",
    "protocol/framing",
    "protocol/records/alike_records",
    "protocol/records/batch",
    "protocol/records/batch_builder",
    "protocol/records/compression",
    "protocol/records/crc32c",
    "protocol/records/record",
    "protocol/records/walk",
    "protocol/varint",
    "clients/connection",
    "clients/consumer/assignment",
    "clients/consumer/consumer_record",
    "clients/consumer/delivery",
    "clients/consumer/progress",
    "clients/producer/accumulator",
    "clients/producer/batch_delivery",
    "clients/producer/producer_record",
    "clients/producer/queues",
    "broker/network/eager_coroutine",
    "broker/network/connection",
    "broker/network/request_processor",
    "broker/network/response_writer",
    "broker/network/serving_task",
    "broker/network/turn_writer",
    "broker/handlers/fetch",
    "broker/handlers/produce",
    "broker/handlers/metadata",
    "broker/metadata/metadata_cache",
    "broker/replication/delayed_operation",
    "broker/replication/fetch_sessions",
    "broker/replication/follower",
    "broker/replication/follower_log",
    "broker/replication/follower_session",
    "broker/replication/hosted_partitions",
    "broker/replication/isr_changes",
    "broker/replication/legacy_producers",
    "broker/replication/partition",
    "broker/replication/fetch_reader",
    "broker/replication/replica_fetcher",
    "broker/replication/replica_manager",
    "broker/replication/session_fetch_reader",
    "broker/replication/purgatory",
    "broker/storage/batch_validity",
    "broker/storage/epochs",
    "broker/storage/record_rewriting",
    "broker/storage/replicated_run",
    "broker/storage/index",
    "broker/storage/inspection",
    "broker/storage/log",
    "broker/storage/log_append",
    "broker/storage/log_manager",
    "broker/storage/memory_files",
    "broker/storage/producer_state",
    "broker/storage/segment",
    "broker/storage/segment_indexes",
    "broker/storage/segments",
    "broker/storage/validation",
)
"""Where requests and records spend their time. `tests/test_compiled.py` knows what mypyc does otherwise."""


def extensions() -> list[Any]:
    """The compiled modules."""
    from mypyc.build import mypycify  # noqa: PLC0415 -- only where it is asked for

    here = Path(__file__).parent
    shutil.rmtree(here / "build", ignore_errors=True)  # what an earlier build has compiled does not fit this one
    # The project's own settings of mypy are for `make check`. Here what it imports need not be installed.
    settings = ["--config-file=", "--ignore-missing-imports", "--explicit-package-bases"]
    with contextlib.chdir(here / "src"):  # tracebacks name files as they are found on sys.path
        paths = [f"anabranch/{name}.py" for name in HOT]
        target = str(here / "build" / "mypyc")
        made: list[Any] = mypycify([*settings, *paths], opt_level="2", group_name="anabranch", target_dir=target)
    return made


builds = {"bdist_wheel", "build_ext"} & set(sys.argv)  # and not when it is only asked what it needs
setup(setup_requires=[MYPY] if COMPILE else [], ext_modules=extensions() if COMPILE and builds else [])
