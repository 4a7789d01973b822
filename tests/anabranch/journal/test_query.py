"""The journal is filtered with the fields of rules; impossible filters are refused."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.faults.rule_json import InvalidRule
from anabranch.journal.query import WORDS, Query, read


def test_query_words_are_read_from_text() -> None:
    assert read("partition", "1,2") == [1, 2] and read("topic", "a,b") == ["a", "b"]
    assert read("between_brokers", "true") is True and read("between_brokers", "false") is False
    assert read("partition", 3) == 3 and read("client_id", "x,y") == "x,y"
    by_texts = Query.of(
        {"api": "Fetch,Produce", "partition": "1", "limit": "5", "after": "7", "outcome": "given up"}, (1,)
    )
    assert (by_texts.limit, by_texts.after, by_texts.outcome) == (5, 7, "given up")
    assert Query.of({"error": "REQUEST_TIMED_OUT"}, (1,)).error == "REQUEST_TIMED_OUT"
    assert by_texts.matcher.named == Query.of({"partition": 1}, ()).matcher.named


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"topics": "a"}, "unknown filters: topics; did you mean topic"),
        ({"times": 1}, "unknown filters: times"),
        ({"api": "Produced"}, "unknown API 'Produced'; did you mean Produce"),
        ({"api": "Heartbeat", "topic": "a"}, "Heartbeat has no topic"),
        ({"brokers": "4"}, "there is no broker 4; there are 1"),
        ({"between_brokers": "1"}, "between_brokers is true or false, not '1'"),
        ({"partition": "x"}, "partition is a number, not 'x'"),
        ({"after": "x"}, "after is a number, not 'x'"),
        ({"limit": "-1"}, "limit is at least 0, not -1"),
        ({"error": "NOT_LEADER"}, "unknown error 'NOT_LEADER'; did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"error": "NONE"}, "unknown error 'NONE'"),
        ({"outcome": "refused"}, "outcome is answered, unanswered, closed, given up or open, not 'refused'"),
    ],
)
def test_impossible_query_is_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRule, match=reason):
        Query.of(words, (1,))


def test_every_word_is_explained() -> None:
    assert all(WORDS.values()) and {"topic", "error", "rule", "after"} < WORDS.keys() and "times" not in WORDS
