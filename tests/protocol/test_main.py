from __future__ import annotations

import io

import pytest

from anabranch.protocol.__main__ import main
from tests.protocol.test_golden import CAPTURED


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(list(arguments))
    except SystemExit as exit:
        code = int(exit.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_dump_decodes_request_argument(capsys: pytest.CaptureFixture[str]) -> None:
    frame = CAPTURED[3][0]
    code, out, _ = run(capsys, "dump", frame[:40], frame[40:])
    assert code == 0 and '"N14228" -> "UA1545"' in out


def test_dump_decodes_request_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(bytes.fromhex(CAPTURED[0][0]).hex(":") + "\n"))
    code, out, _ = run(capsys, "dump", "-")
    assert code == 0 and 'client_software_name: "confluent-kafka-python"' in out


def test_dump_decodes_response(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "dump", "--response", "heartbeat", "0", "00000005 001b")
    assert code == 0 and "REBALANCE_IN_PROGRESS" in out


def test_malformed_bytes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "dump", "0001 0004 00000001 ffff 0000")
    assert (code, out) == (1, "")
    assert err.startswith("cannot decode: Fetch v4 replica_id: ends too early at byte 10 [")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["dump", "xyz"], "the frame is not hex"),
        (["dump", "--response", "Fetsh", "1", "00"], "did you mean Fetch"),
        (["dump", "--response", "Fetch", "x", "00"], "'x' is not a version; Fetch has 0 to 18"),
        (["source", "Fetch", "19"], "Fetch has versions 0 to 18, not 19"),
        (["source", "Metadatta", "1"], "did you mean Metadata"),
        (["frobnicate"], "invalid choice"),
        ([], "required"),
    ],
)
def test_invalid_command_line_is_refused_with_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2 and reason in err


def test_source_shows_generated_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "source", "1", "4")
    assert code == 0
    assert out.count("def decode(buf, pos, entries=ENDLESS):") == 2 and out.count("def encode(message):") == 2
    compile(out, "<shown>", "exec")


def test_every_api_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "apis")
    assert code == 0 and "   56  AlterPartition" in out and "2531  PartitionLeaderEpochsForPartitions" in out


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "examples:" in out
    example = next(line for line in out.splitlines() if "dump 0012" in line).split("dump ")[1]
    assert run(capsys, "dump", *example.split())[1].startswith(
        'ApiVersions v0 request, correlation id 1, client id "root"'
    )
