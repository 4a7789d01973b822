"""Rates, limits and throttle times with Kafka's arithmetic, without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.quotas.client_quotas import (
    ANONYMOUS,
    DEFAULT,
    FETCH,
    IDLE_MS,
    PRODUCE,
    RATES_MAX,
    WAIT_MS_MAX,
    ClientQuotas,
    Entity,
    Rate,
)


def quotas(limits: dict[Entity, float], what: str = PRODUCE) -> ClientQuotas:
    made = ClientQuotas(window_ms=1000, samples=11)
    for entity, limit in limits.items():
        made.set_limits(entity, {what: limit})
    return made


def test_rate_is_measured_over_at_least_ten_windows() -> None:
    """As in Kafka's `Rate`: a burst in the first second is spread over a full history of windows."""
    rate = Rate(1000, 11)
    rate.record(1000, 0)
    assert rate.per_second(0) == 100
    rate.record(500, 500)
    assert rate.per_second(999) == pytest.approx(1500 / 10.999)
    assert rate.per_second(5000) == pytest.approx(1500 / 10)


def test_expired_windows_are_not_counted() -> None:
    rate = Rate(1000, 11)
    rate.record(1000, 0)
    rate.record(10, 5000)
    assert rate.per_second(10_999) == pytest.approx(1010 / 10.999)
    assert rate.per_second(11_000) == pytest.approx(10 / 10)
    assert rate.per_second(16_000) == 0


def test_window_expires_a_history_after_its_last_use() -> None:
    """A window begins with its first use and lasts a second; later use in it ages from the window's end."""
    rate = Rate(1000, 11)
    rate.record(100, 0)
    rate.record(1000, 900)
    assert rate.per_second(11_500) == pytest.approx(1100 / 11.5)
    assert rate.per_second(11_900) == 0


@given(st.lists(st.integers(1, 3000), min_size=20, max_size=50))
def test_client_honoring_throttle_times_gets_its_quota(uses: list[int]) -> None:
    """A client that uses its whole quota. As in Kafka, rare large uses get up to twice the limit."""
    limited, now_ms = quotas({(None, DEFAULT): 100}), 0
    for amount in uses * 5:
        now_ms += 1 + limited.record(PRODUCE, "c", amount, now_ms)
    burst = 100 * 11 + max(uses)
    assert sum(uses) * 5 <= 2 * 100 * now_ms / 1000 + burst


def test_steady_client_is_throttled_to_its_quota() -> None:
    limited, now_ms = quotas({(None, DEFAULT): 100}), 0
    for _ in range(1000):
        now_ms += 1 + limited.record(PRODUCE, "c", 50, now_ms)
    assert 50_000 * 1000 / now_ms == pytest.approx(100, rel=0.05)


def test_throttle_time_equals_kafkas() -> None:
    limited = quotas({(None, "c"): 100})
    assert limited.record(PRODUCE, "c", 1000, 0) == 0, "exactly the limit"
    assert limited.record(PRODUCE, "c", 500, 0) == 5000, "half too much, over ten seconds"
    assert limited.record(PRODUCE, "c", 0, 0, longest_ms=1000) == 1000
    limited.refund(PRODUCE, "c", 500, 0)
    assert limited.record(PRODUCE, "c", 0, 0) == 0
    assert limited.record(FETCH, "c", 10**9, 0) == 0 and limited.record(PRODUCE, "d", 10**9, 0) == 0
    assert limited.burst(PRODUCE, "c") == 1000 and limited.burst(PRODUCE, "d") is None


@pytest.mark.parametrize("limit", [0, 0.5])
def test_throttle_time_fits_into_a_response(limit: float) -> None:
    """Zero shuts a client out."""
    assert quotas({(None, "c"): limit}).record(PRODUCE, "c", 3_000_000, 0) == WAIT_MS_MAX


LEVELS: list[Entity] = [
    (None, DEFAULT),
    (None, "c"),
    (DEFAULT, None),
    (DEFAULT, DEFAULT),
    (DEFAULT, "c"),
    (ANONYMOUS, None),
    (ANONYMOUS, DEFAULT),
    (ANONYMOUS, "c"),
]


def test_most_specific_quota_applies() -> None:
    made = quotas({})
    for number, entity in enumerate(LEVELS):
        made.set_limits(entity, {PRODUCE: number + 1})
        found = made.limit_of(PRODUCE, "c")
        assert found is not None and found[0] == number + 1
    for number, entity in reversed(list(enumerate(LEVELS))):
        found = made.limit_of(PRODUCE, "c")
        assert found is not None and found[0] == number + 1
        made.set_limits(entity, {})
    assert made.limit_of(PRODUCE, "c") is None and not made.limited


def test_default_quotas_apply_per_client_or_per_user() -> None:
    per_client = quotas({(None, DEFAULT): 100})
    assert per_client.record(PRODUCE, "a", 2000, 0) and not per_client.record(PRODUCE, "b", 500, 0)
    per_user = quotas({(DEFAULT, None): 100})
    assert per_user.record(PRODUCE, "a", 2000, 0) and per_user.record(PRODUCE, "b", 500, 0)


def test_idle_rates_are_removed() -> None:
    made = quotas({(None, DEFAULT): 100})
    for number in range(RATES_MAX):
        made.record(PRODUCE, str(number), 1, 0)
    made.record(PRODUCE, "late", 1, IDLE_MS)
    assert len(made._rates) == 1


def test_rates_are_kept_when_limits_are_read_again() -> None:
    """Each change of a quota or of a user's password has all limits read again."""
    made = ClientQuotas(window_ms=1000, samples=11)
    limits: dict[Entity, dict[str, float]] = {(None, "p"): {PRODUCE: 100}, (None, "c"): {FETCH: 100}}
    made.replace_limits(limits)
    assert made.record(PRODUCE, "p", 1500, 0) == made.record(FETCH, "c", 1500, 0) == 5000
    made.replace_limits(limits)
    assert made.record(PRODUCE, "p", 0, 0) == made.record(FETCH, "c", 0, 0) == 5000
    made.replace_limits({(None, "p"): {PRODUCE: 100}})
    made.replace_limits(limits)
    assert (made.record(PRODUCE, "p", 0, 0), made.record(FETCH, "c", 0, 0)) == (5000, 0)
