"""The token bucket of mutations: initially full, briefly negative, refilled at the rate."""

from __future__ import annotations

from anabranch.broker.quotas.client_quotas import DEFAULT, IDLE_MS, RATES_MAX, WAIT_MS_MAX, ClientQuotas
from anabranch.broker.quotas.controller_mutation_quotas import MUTATIONS, MutationQuotas


def mutations(limit: float) -> MutationQuotas:
    quotas = ClientQuotas(window_ms=1000, samples=11)
    quotas.set_limits((None, DEFAULT), {MUTATIONS: limit})
    return MutationQuotas(quotas)


def test_strict_quota_refuses_until_the_bucket_is_refilled() -> None:
    limited = mutations(2)
    assert limited.spend("c", 20, 0, strict=True) == (True, 0), "ten seconds' worth at once"
    assert limited.spend("c", 10, 0, strict=True) == (True, 0), "not below zero yet"
    assert limited.spend("c", 1, 0, strict=True) == (False, 5000)
    assert limited.spend("c", 1, 4999, strict=True) == (False, 1)
    assert limited.spend("c", 1, 5001, strict=True) == (True, 0)
    assert limited.spend("d", 1, 0, strict=True) == (True, 0), "each client its own"


def test_permissive_quota_only_returns_the_throttle_time() -> None:
    limited = mutations(2)
    assert limited.spend("c", 30, 0, strict=False) == (True, 5000)
    assert limited.spend("c", 1, 0, strict=False) == (True, 5500)


def test_token_bucket_is_bounded_by_the_history() -> None:
    limited = mutations(2)
    limited.spend("c", 0, 0, strict=True)
    assert limited.spend("c", 30, 10**9, strict=False) == (True, 5000)


def test_mutations_without_quota_are_not_counted() -> None:
    free = MutationQuotas(ClientQuotas(window_ms=1000, samples=11))
    assert free.spend("c", 10**9, 0, strict=True) == (True, 0)


def test_infinite_quota_limits_nothing() -> None:
    limited = mutations(float("inf"))
    assert limited.spend("c", 10**9, 0, strict=True) == (True, 0)
    assert limited.spend("c", 10**9, 0, strict=True) == (True, 0)


def test_throttle_time_of_mutations_fits_into_a_response() -> None:
    assert mutations(0).spend("c", 3000, 0, strict=False) == (True, WAIT_MS_MAX)


def test_buckets_of_idle_clients_are_removed() -> None:
    limited = mutations(2)
    for number in range(RATES_MAX):
        limited.spend(f"c{number}", 30, 0, strict=False)
    limited.spend("new", 1, IDLE_MS - 1, strict=True)
    assert len(limited._buckets) == RATES_MAX + 1
    limited.spend("newer", 1, IDLE_MS, strict=True)
    assert len(limited._buckets) == 2
