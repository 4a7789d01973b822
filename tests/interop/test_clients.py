"""The commands of this folder explain themselves, and refuse arguments that they do not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.interop import clients, fault_table


@pytest.mark.parametrize(
    ("main", "words", "status", "says"),
    [
        (clients.main, ["--help"], 0, "kcat by apt-get, others by npm and Go"),
        (clients.main, ["kcat"], 2, "unrecognized arguments: kcat"),
        (fault_table.main, ["--help"], 0, "write the tables into the page"),
        (fault_table.main, ["aiokafk"], 2, "no client 'aiokafk'; did you mean aiokafka?"),
        (fault_table.main, ["--wriet"], 2, "unrecognized arguments: --wriet"),
    ],
)
def test_help_and_unknown_arguments_end_before_anything_is_installed_or_measured(
    main: Callable[[Sequence[str]], None],
    words: list[str],
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(clients, "install", lambda: pytest.fail("the clients would be installed"))
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr()
    assert ended.value.code == status
    assert says in " ".join((shown.out + shown.err).split())
