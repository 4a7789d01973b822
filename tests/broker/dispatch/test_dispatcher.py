"""The list of handlers equals their declarations."""

from __future__ import annotations

from dataclasses import fields

from anabranch.broker.dispatch.dispatcher import HANDLERS, HandlerRow, error_response_or_none
from anabranch.broker.dispatch.request_context import declaration_of, version_range
from anabranch.protocol import codec
from anabranch.protocol.codec import DecodedRequest
from anabranch.protocol.errors import ErrorCode
from tests.cases import for_each


@for_each(HANDLERS)
def test_handler_row_equals_its_declaration(row: HandlerRow) -> None:
    declaration = declaration_of(row.load())
    assert declaration.request is row.api.request
    assert (declaration.first_version, declaration.last_version) == version_range(row.versions)
    assert declaration.last_version <= row.api.last_version


def test_rows_are_unique_and_in_the_order_of_their_keys() -> None:
    keys = [row.api.key for row in HANDLERS]
    assert keys == sorted(set(keys))


@for_each(HANDLERS)
def test_error_response_is_encoded_in_every_version_with_an_error_code(row: HandlerRow) -> None:
    first, last = version_range(row.versions)
    for version in range(first, last + 1):
        response = error_response_or_none(
            DecodedRequest(row.api, version, 1, "t", object()), ErrorCode.UNKNOWN_SERVER_ERROR
        )
        if response is None:
            continue
        decoded, _ = codec.decode(row.api.response, version, codec.encode(response, version))
        assert decoded.error_code == -1
    assert any(field.name for field in fields(row.api.response))
