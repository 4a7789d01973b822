"""`anabranch control serve`: its options, and its errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.anabranch.cli.conftest import Command

SERVE = ("control", "serve", "--zookeeper", "127.0.0.1:1", "--control", "127.0.0.1:0")


def test_token_file_that_others_can_read_is_refused(anabranch: Command, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    path.chmod(0o644)
    refused = anabranch(*SERVE, "--token-file", str(path))
    assert refused.exit_code == 2 and f"other users can read it; chmod 600 {path}" in refused.output


@pytest.mark.parametrize(("content", "reason"), [("", "is empty"), (None, "No such file")])
def test_token_file_without_a_token_is_refused(
    anabranch: Command, tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.touch(mode=0o600)
    refused = anabranch(*SERVE, "--token-file", str(path))
    assert refused.exit_code == 2 and reason in refused.output


def test_open_address_needs_a_token(anabranch: Command) -> None:
    refused = anabranch(*SERVE[:-1], "0.0.0.0:0")
    assert refused.exit_code == 2 and "a non-loopback address needs --control-token" in refused.output


@pytest.mark.parametrize("option", ["--ca-file", "--control-certificate", "--command-config"])
def test_unreadable_security_file_is_named_with_its_option(anabranch: Command, tmp_path: Path, option: str) -> None:
    path = tmp_path / "file"
    path.write_text("security.protocol=NONE")
    refused = anabranch(*SERVE, option, str(path))
    assert refused.exit_code == 2 and f"{option} {path}: " in refused.output
