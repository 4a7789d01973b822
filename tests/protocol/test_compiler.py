"""Generated code in listings, tracebacks and import times."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from anabranch.protocol import codec
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.compiler import source_of
from anabranch.protocol.registry import api_of
from tests.cases import for_each
from tests.protocol.messages import MESSAGES


def test_adjacent_fixed_width_fields_are_decoded_together() -> None:
    source = source_of(FetchRequest, 4)
    assert "partition.partition, partition.fetch_offset, partition.partition_max_bytes = read_iqi(buf, pos)" in source
    assert "session_id" not in source.split("def encode")[1]


def test_invalid_value_fails_on_a_readable_source_line() -> None:
    request = FetchRequest(max_wait_ms=2**40, min_bytes=1, topics=[])
    try:
        codec.encode(request, 0)
    except Exception:
        shown = traceback.format_exc()
    else:
        pytest.fail("an int32 of 41 bits was encoded")
    assert "<encode FetchRequest v0>" in shown
    assert "message.max_wait_ms" in shown


@for_each(MESSAGES)
def test_version_outside_of_range_has_no_codec(message: type) -> None:
    for version in (-1, api_of(message).last_version + 1):
        with pytest.raises(ValueError, match="has versions 0 to"):
            source_of(message, version)


def test_protocol_imports_no_heavy_modules() -> None:
    code = (
        "import sys, anabranch.protocol.connection, anabranch.protocol.apis.fetch as f;"
        "from anabranch.protocol import codec;"
        "codec.decode(f.FetchRequest, 12, codec.encode(f.FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), 12));"
        "print(sorted({'construct', 'click', 'rich', 'numpy', 'hypothesis'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
