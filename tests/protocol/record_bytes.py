"""Compares group records with the bytes of Kafka's own classes."""

from __future__ import annotations

from typing import Any

from anabranch.protocol import group_records
from anabranch.protocol.internal_topics import decode_key


def check_bytes(key: Any, content: Any, key_hex: str, value_hex: str) -> None:
    """Encode a record, and read it again."""
    encoded_key, encoded_value = group_records.encode((key, content))
    assert (encoded_key.hex(), (encoded_value or b"").hex()) == (key_hex, value_hex)
    found = decode_key(encoded_key)
    assert found == key and group_records.is_ours(found)
    assert group_records.decode_value(found, encoded_value or b"") == content
    assert group_records.encode((key, None)) == (encoded_key, None)
