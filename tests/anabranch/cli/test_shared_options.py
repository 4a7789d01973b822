"""The connect string of an ensemble is checked before a command starts. The other shared options are declarations."""

from __future__ import annotations

import click
import pytest

from anabranch.cli.shared_options import check_zookeeper

CONTEXT = click.Context(click.Command("node"))
OPTION = click.Option(["--zookeeper"])


@pytest.mark.parametrize("text", ["127.0.0.1:2181", "one:1,[::1]:2/chroot", "zk"])
def test_connect_string_is_returned(text: str) -> None:
    assert check_zookeeper(CONTEXT, OPTION, text) == text


@pytest.mark.parametrize("text", ["", "::1:2181", "a..b", "one:x"])
def test_malformed_connect_string_is_refused_with_syntax(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write HOST:PORT"):
        check_zookeeper(CONTEXT, OPTION, text)
