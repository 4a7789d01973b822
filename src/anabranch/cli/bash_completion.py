"""Completion in bash, also of words with `=` or `:`, such as `retention.ms=1` and `127.0.0.1:9092`.

Bash splits a line at these characters too, and replaces only the last part. Click's own class would take each part for
an argument, and its completions would repeat the earlier parts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

BREAKS: Final = "=:"
SOURCE: Final = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == dir ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == file ]]; then
            COMPREPLY=()
            compopt -o default
        else
            COMPREPLY+=("$value")
            [[ $value == *= ]] && compopt -o nospace
        fi
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BrokenWordsComplete(BashComplete):
    """Joins the words that bash has split, and completes the last part of them."""

    source_template = SOURCE

    def get_completion_args(self) -> tuple[list[str], str]:
        """The complete arguments, and the incomplete one; click calls it."""
        words, index = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        last = words[index] if index < len(words) else ""
        joined = joined_words([*words[:index], last])
        typed = "" if last and not last.strip(BREAKS) else last
        self._before = joined[-1].removesuffix(typed)
        return joined[1:-1], joined[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """One line of the answer: the part that bash replaces; click calls it."""
        return f"{item.type},{str(item.value).removeprefix(self._before)}"


def joined_words(words: list[str]) -> list[str]:
    """Join the parts of words that bash has split at `=` and `:`."""
    joined: list[str] = []
    is_open = False
    for word in words:
        is_break = bool(word) and not word.strip(BREAKS)
        if joined and (is_open or is_break):
            joined[-1] += word
        else:
            joined.append(word)
        is_open = is_break
    return joined


add_completion_class(BrokenWordsComplete)
