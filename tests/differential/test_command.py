"""`python -m tests.differential` explains itself, and refuses a name that no case has."""

from __future__ import annotations

import pytest

from tests.differential.__main__ import main


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--help"], 0, "an API, an API.case, or a number of brokers"),
        (["Fetch", "Fetchh"], 2, "no case 'Fetchh'; did you mean Fetch?"),
        (["Fetch.limit"], 2, "no case 'Fetch.limit'; did you mean Fetch.limits?"),
        (["2"], 2, "no case '2'; there are AddOffsetsToTxn, "),
        (["--kept"], 2, "unrecognized arguments: --kept"),
    ],
)
def test_help_and_unknown_names_end_before_a_comparison(
    words: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr()
    assert ended.value.code == status
    assert says in " ".join((shown.out + shown.err).split())
