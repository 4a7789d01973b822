"""Windows: which ones a record falls into, when they close, and the bytes of their keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.streams.windows import (
    JoinWindows,
    Session,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windowed,
    encode_key,
)


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 10_000))
def test_record_falls_into_all_windows_that_contain_its_time(size_ms: int, advance_ms: int, timestamp_ms: int) -> None:
    windows = TimeWindows(size_ms, advance_ms=min(advance_ms, size_ms))
    found = [(one.start_ms, one.end_ms) for one in windows.of(b"k", timestamp_ms)]
    starts = range(0, timestamp_ms + 1, windows.advance_ms)
    assert found == [(start, start + size_ms) for start in starts if start <= timestamp_ms < start + size_ms]


def test_time_window_closes_when_stream_time_reaches_its_end_and_grace_period() -> None:
    assert TimeWindows(10).closes_at_ms(Windowed(b"k", 20, 30)) == 30
    assert TimeWindows(10, grace_ms=5).closes_at_ms(Windowed(b"k", 20, 30)) == 35


def test_sliding_window_closes_when_its_end_and_grace_period_have_passed() -> None:
    windows = SlidingWindows(10, grace_ms=5)
    window = windows.starting(b"k", 20)
    assert window == Windowed(b"k", 20, 30)
    assert windows.closes_at_ms(window) == 36, "its end belongs to it"
    assert windows.kept_until_ms(window) == 47


@pytest.mark.parametrize(
    ("difference_ms", "grace_ms", "reason"), [(0, 0, "difference_ms"), (-3, 0, "difference_ms"), (1, -1, "grace_ms")]
)
def test_invalid_sliding_windows_are_refused(difference_ms: int, grace_ms: int, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{reason} must"):
        SlidingWindows(difference_ms, grace_ms)


def test_session_closes_when_no_record_can_extend_it() -> None:
    assert SessionWindows(10).closes_at_ms(Session(b"k", 20, 30)) == 41, "one at 40 belongs to it"
    assert SessionWindows(10, grace_ms=5).closes_at_ms(Session(b"k", 20, 30)) == 46


@given(st.binary(), st.integers(0, 1 << 61), st.integers(0, 1 << 61))
def test_store_key_contains_the_window(key: bytes, start_ms: int, length_ms: int) -> None:
    tumbling, sliding, sessions = TimeWindows(7), SlidingWindows(7), SessionWindows(7)
    window, session = Windowed(key, start_ms, start_ms + 7), Session(key, start_ms, start_ms + length_ms)
    assert tumbling.window_of(tumbling.store_key(window)) == window
    assert sliding.window_of(sliding.store_key(window)) == window
    assert sessions.window_of(sessions.store_key(session)) == session
    assert tumbling.store_key(window)[: -tumbling.suffix_bytes] == key
    assert sliding.store_key(window)[: -sliding.suffix_bytes] == key
    assert sessions.store_key(session)[: -sessions.suffix_bytes] == key


def test_keys_are_written_as_by_kafka_streams() -> None:
    """TimeWindowedSerializer writes key and start; SessionWindowedSerializer key, end and start."""
    assert encode_key(Windowed(b"k", 1, 11)) == b"k" + bytes.fromhex("0000000000000001")
    assert encode_key(Session(b"k", 1, 11)) == b"k" + bytes.fromhex("000000000000000b0000000000000001")
    assert encode_key(b"k") == b"k"
    assert encode_key(None) is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"size_ms": 0}, "size_ms must be positive: 0"),
        ({"size_ms": -1}, "size_ms must be positive: -1"),
        ({"size_ms": 10, "advance_ms": 11}, r"advance_ms must be between 1 and size_ms \(10\): 11"),
        ({"size_ms": 10, "advance_ms": -1}, r"advance_ms must be between 1 and size_ms \(10\): -1"),
        ({"size_ms": 10, "grace_ms": -1}, "grace_ms must not be negative: -1"),
    ],
)
def test_invalid_time_windows_are_refused(arguments: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TimeWindows(**arguments)


@pytest.mark.parametrize(("gap_ms", "grace_ms", "reason"), [(0, 0, "gap_ms"), (-3, 0, "gap_ms"), (1, -1, "grace_ms")])
def test_invalid_sessions_are_refused(gap_ms: int, grace_ms: int, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{reason} must"):
        SessionWindows(gap_ms, grace_ms)


def test_join_window_of_a_right_record_is_the_reverse_of_that_of_a_left_one() -> None:
    windows = JoinWindows(3, 10, 5)
    assert windows.around(100, is_left=True) == (97, 110)
    assert windows.around(100, is_left=False) == (90, 103)
    assert windows.around(1, is_left=True) == (0, 11)
    assert windows.open_ms == (8, 15)
    assert windows.retention_ms == 18


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((-5, 4), r"before_ms \+ after_ms must not be negative: -5 \+ 4"),
        ((5, 5, -1), "grace_ms must not be negative: -1"),
        ((-5, 5), "give it a grace_ms of 1 or more"),
    ],
)
def test_invalid_join_windows_are_refused(arguments: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        JoinWindows(*arguments)


def test_misspelled_argument_is_refused_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match="grace_ms"):
        TimeWindows(10, grace=5)  # type: ignore[call-arg]
