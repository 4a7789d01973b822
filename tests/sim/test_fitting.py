"""A bug that does not fit is not planted."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from tests.sim.fitting import Misfit, check_fit


class Product:
    __slots__ = ("slot",)

    def method(self, first: int, second: int = 0, *, newer: bool = False) -> None: ...

    async def coroutine(self) -> None: ...

    def promise(self) -> Awaitable[None]: ...

    @property
    def shown(self) -> int:
        return 0

    @classmethod
    def open(cls, path: str) -> None: ...


async def awaited(product: Any) -> None: ...


@pytest.mark.parametrize(
    "value",
    [
        lambda product, first, second=1, *, newer=True: None,
        lambda product, *args, **options: None,
        lambda product, first, second=0, third=0, **options: None,
    ],
)
def test_replacement_with_compatible_signature_fits(value: Any) -> None:
    check_fit("method", Product.method, value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("method", lambda product, first, second=0: None, "newer"),
        ("method", lambda product, first, second=0, *, newer: None, "newer"),
        ("method", lambda product, first, second, *, newer=False: None, "second"),
        ("method", lambda product, first, *, newer=False: None, "second"),
        ("method", lambda product, first, other=0, *, newer=False: None, "second"),
        ("method", lambda product, first, second=0, *, newer=False, more: None, "more"),
        ("method", property(lambda product: None), "is a function"),
        ("method", awaited, "is not awaited"),
        ("coroutine", lambda product: None, "is awaited"),
        ("shown", lambda product: 1, "is a property"),
        ("slot", lambda product: 1, "is a property"),
        ("open", classmethod(lambda cls: None), "path"),
        ("open", lambda path: None, "is a classmethod"),
    ],
)
def test_replacement_with_incompatible_signature_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(Misfit, match=said):
        check_fit(name, vars(Product)[name], value)


def test_properties_slots_and_coroutines_require_same_kind() -> None:
    check_fit("shown", vars(Product)["shown"], property(lambda product: 1))
    check_fit("slot", vars(Product)["slot"], property(lambda product: 1))
    check_fit("open", vars(Product)["open"], classmethod(lambda cls, path: None))
    check_fit("coroutine", Product.coroutine, awaited)
    check_fit("promise", Product.promise, awaited)
