"""Subscriptions and responses as bytes."""

from __future__ import annotations

import pytest

from anabranch.clients.streams.subscription_wrapper import (
    RESPONSE,
    SUBSCRIPTION,
    VERSION,
    Instruction,
    SubscriptionResponseWrapper,
    SubscriptionWrapper,
    combined_key,
    hash_of,
    prefix_of,
)


@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("instruction", Instruction)
@pytest.mark.parametrize("key", [b"", b"k"])
def test_subscription_is_decoded_as_it_was(value: bytes | None, instruction: Instruction, key: bytes) -> None:
    one = SubscriptionWrapper(hash_of(value), instruction, key)
    assert SUBSCRIPTION.decode(SUBSCRIPTION.encode(one)) == one


@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("row", [None, b"", b"row"])
@pytest.mark.parametrize("only_if_result", [False, True])
def test_response_is_decoded_as_it_was(value: bytes | None, row: bytes | None, only_if_result: bool) -> None:
    one = SubscriptionResponseWrapper(hash_of(value), row, only_if_result)
    assert RESPONSE.decode(RESPONSE.encode(one)) == one


def test_hash_tells_values_and_deletions_apart() -> None:
    assert len({hash_of(None), hash_of(b""), hash_of(b"v"), hash_of(b"w")}) == 4


def test_other_version_is_refused() -> None:
    raw = bytearray(RESPONSE.encode(SubscriptionResponseWrapper(None, None)))
    raw[0] = VERSION + 1
    with pytest.raises(ValueError, match="version 1 has sent this; this one has version 0"):
        RESPONSE.decode(bytes(raw))


def test_keys_of_one_foreign_key_only_begin_with_its_prefix() -> None:
    keys = {(foreign, key): combined_key(foreign, key) for foreign in (b"", b"c", b"c1") for key in (b"", b"1", b"c")}
    assert len(set(keys.values())) == len(keys)
    for foreign in (b"", b"c", b"c1"):
        mine = {pair for pair, combined in keys.items() if combined.startswith(prefix_of(foreign))}
        assert mine == {pair for pair in keys if pair[0] == foreign}
