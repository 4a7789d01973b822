"""Words that bash splits at `=` and `:`, and the script that bash evaluates."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli.bash_completion import joined_words

SCRIPT = """\
eval "$(_ANABRANCH_COMPLETE=bash_source anabranch)"
compopt() { echo "compopt $2"; }
COMP_WORDS=(anabranch topics config t --config retention.m)
COMP_CWORD=5
_anabranch_completion anabranch
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["a", "--config", "retention.ms", "=", "1"], ["a", "--config", "retention.ms=1"]),
        (["a", "--config", "retention.ms", "="], ["a", "--config", "retention.ms="]),
        (["a", "127.0.0.1", ":", "9092", "t"], ["a", "127.0.0.1:9092", "t"]),
        (["a", "http", ":", "//h", ":", "1", ""], ["a", "http://h:1", ""]),
        (["a", "x=y", "t"], ["a", "x=y", "t"]),
    ],
)
def test_split_words_are_joined(words: list[str], joined: list[str]) -> None:
    assert joined_words(words) == joined


def test_bash_adds_no_space_after_property_name() -> None:
    bash, installed = shutil.which("bash"), Path(sys.executable).with_name("anabranch")
    if bash is None or not installed.exists():
        pytest.skip("NO BASH, OR anabranch IS NOT INSTALLED: the script for bash was NOT run")
    environment = {"PATH": f"{installed.parent}:/usr/bin:/bin"}
    done = subprocess.run([bash, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["compopt nospace", "retention.ms=", ""], done.stderr
