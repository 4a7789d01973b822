"""A template with kcat's tokens prints like kcat; an unknown token is refused."""

from __future__ import annotations

import pytest

from anabranch import ConsumerRecord
from anabranch.inspect.record_format import compile_format

RECORD = ConsumerRecord("orders", 3, 41, 1700000000123, b"key", b"\xffvalue", (("a", b"1"), ("b", None)), 0)
EMPTY = RECORD._replace(key=None, value=None, headers=())


@pytest.mark.parametrize(
    ("template", "record", "written"),
    [
        (r"%t-%p@%o %k %s\n", RECORD, b"orders-3@41 key \xffvalue\n"),
        (r"%T\t%h", RECORD, b"1700000000123\ta=1,b=NULL"),
        ("%K %S %R", RECORD, b"3 6 \x00\x00\x00\x06"),
        ("[%k|%s|%h] %K %S %R", EMPTY, b"[||] -1 -1 \xff\xff\xff\xff"),
        (r"100%% \\n\x00\r ü", RECORD, b"100% \\n\x00\r \xc3\xbc"),
    ],
)
def test_template_is_filled_with_fields(template: str, record: ConsumerRecord, written: bytes) -> None:
    assert compile_format(template)(record) == written


@pytest.mark.parametrize(("template", "named"), [("%k %q", "%q"), (r"%k\d", r"\d"), ("%k %", "%"), (r"\x4", r"\x")])
def test_unknown_token_is_refused_with_list_of_tokens(template: str, named: str) -> None:
    with pytest.raises(ValueError, match="the tokens are %t %p %o") as caught:
        compile_format(template)
    assert f"unknown token {named};" in str(caught.value)
