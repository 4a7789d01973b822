"""A real node returns every error code that the source of brokers and controllers names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from anabranch.protocol.errors import ErrorCode
from tests.contracts import error_codes
from tests.contracts.error_codes import Case, World

ALL = error_codes.load()
Make = tuple[int, tuple[tuple[str, str], ...]]


class Worlds:
    """Clusters that cases share, one of each make."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._open: dict[Make, tuple[object, World]] = {}

    def run(self, one: Case) -> set[int]:
        """The codes in the answer of a case."""
        return self._runner.run(self._run(one))

    async def _run(self, one: Case) -> set[int]:
        async with asyncio.timeout(60):
            if one.alone:
                async with error_codes.world(one) as world:
                    return error_codes.codes_in(await one.scenario(world))
            make = (one.brokers, tuple(sorted(one.properties.items())))
            if make not in self._open:
                context = error_codes.world(one)
                self._open[make] = (context, await context.__aenter__())
            return error_codes.codes_in(await one.scenario(self._open[make][1]))

    async def close(self) -> None:
        for context, _ in self._open.values():
            await context.__aexit__(None, None, None)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    with asyncio.Runner() as runner:
        made = Worlds(runner)
        yield made
        runner.run(made.close())


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_request_gets_expected_error_code(one: Case, worlds: Worlds) -> None:
    answered = worlds.run(one)
    assert one.code in answered, f"{one.how}: answered with {[ErrorCode(code).name for code in sorted(answered)]}"


def test_every_code_in_source_has_a_case() -> None:
    missing = error_codes.in_source().keys() - {one.code for one in ALL} - error_codes.UNDERSTOOD.keys()
    assert not missing, sorted(code.name for code in missing)


def test_codes_of_other_brokers_occur_only_where_listed() -> None:
    source = error_codes.in_source()
    for code, files in error_codes.UNDERSTOOD.items():
        assert source[code] == files, f"{code.name} may be sent from a new place, or is no longer used"
        assert code not in {one.code for one in ALL}


def test_every_case_has_a_description() -> None:
    assert [one.name for one in ALL if not one.how] == []
    assert error_codes.table().count("\n") == len(ALL) + 1
