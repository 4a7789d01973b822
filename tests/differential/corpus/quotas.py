"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from anabranch.protocol.apis.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from anabranch.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, EntityData
from tests.differential.case import Run, case

EXACT, DEFAULT, ANY = 0, 1, 2


def alter(
    entity: list[tuple[str, str | None]], *ops: tuple[str, float | None], validate_only: bool = False
) -> AlterClientQuotasRequest:
    """Set quotas of an entity, or remove them (None)."""
    rows = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops]
    entry = EntryData(entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity], ops=rows)
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


def described(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    """Quotas of the entities that match."""
    rows = [ComponentData(entity_type=kind, match_type=how, match=what) for kind, how, what in components]
    return DescribeClientQuotasRequest(components=rows, strict=strict)


@case("AlterClientQuotas")
async def set_and_removed(run: Run) -> None:
    client, user = run.name("client"), run.name("user")
    for entity in ([("client-id", client)], [("user", user)], [("user", user), ("client-id", client)]):
        view = described(*((kind, EXACT, name) for kind, name in entity), strict=True)
        await run.ask(alter(entity, ("producer_byte_rate", 1000.0), validate_only=True))
        await run.ask(alter(entity, ("producer_byte_rate", 1000.0), ("request_percentage", 12.5)))
        await run.until(view, lambda answer: bool(answer.entries) and len(answer.entries[0].values) == 2)
        await run.ask(alter(entity, ("producer_byte_rate", None), ("consumer_byte_rate", 5.0)))
        await run.until(view, lambda answer: all(one.key != "producer_byte_rate" for one in answer.entries[0].values))
        await run.ask(alter(entity, ("request_percentage", None), ("consumer_byte_rate", None)))
        await run.until(view, lambda answer: not answer.entries)


@case("AlterClientQuotas")
async def refused(run: Run) -> None:
    name = run.name("x")
    await run.ask(alter([("client-id", name)], ("no_such_quota", 1.0)))
    await run.ask(alter([("client-id", name)], ("producer_byte_rate", -1.0)))
    await run.ask(alter([("client-id", name)], ("producer_byte_rate", 0.5)))
    await run.ask(alter([("client-id", name)], ("producer_byte_rate", None)))
    await run.ask(alter([("planet", name)], ("producer_byte_rate", 1.0)))
    await run.ask(alter([("client-id", "")], ("producer_byte_rate", 1.0)))
    await run.ask(alter([], ("producer_byte_rate", 1.0)))
    await run.ask(alter([("client-id", name), ("client-id", name)], ("producer_byte_rate", 1.0)))
    await run.ask(alter([("ip", "not an address")], ("connection_creation_rate", 1.0)))
    await run.ask(alter([("ip", "127.0.0.9")], ("producer_byte_rate", 1.0)))
    await run.ask(alter([("ip", "127.0.0.9"), ("user", "x")], ("connection_creation_rate", 1.0)))
    await run.ask(alter([("client-id", name)]))
    await run.ask(AlterClientQuotasRequest(entries=[], validate_only=False))


@case("AlterClientQuotas")
async def controller_mutations(run: Run) -> None:
    entity = [("client-id", run.name("x"))]
    await run.ask(alter(entity, ("controller_mutation_rate", 1.5)))
    await run.until(described(("client-id", EXACT, entity[0][1]), strict=True), lambda answer: bool(answer.entries))
    await run.ask(alter(entity, ("controller_mutation_rate", None)))


@case("DescribeClientQuotas")
async def filters(run: Run) -> None:
    client, user = run.name("client"), run.name("user")
    await run.prepare(alter([("client-id", client)], ("producer_byte_rate", 1.0)))
    await run.prepare(alter([("user", user), ("client-id", client)], ("producer_byte_rate", 2.0)))
    await run.settled(described(("client-id", EXACT, client)), lambda answer: len(answer.entries) == 2)
    await run.ask(described(("client-id", EXACT, client)))
    await run.ask(described(("client-id", EXACT, client), strict=True))
    await run.ask(described(("user", EXACT, user)))
    await run.ask(described(("user", EXACT, user), strict=True))
    await run.ask(described(("user", EXACT, user), ("client-id", ANY, None), strict=True))
    await run.ask(described(("user", EXACT, user), ("client-id", DEFAULT, None)))
    await run.ask(described(("user", EXACT, run.name("none"))))
    await run.prepare(alter([("client-id", client)], ("producer_byte_rate", None)))
    await run.prepare(alter([("user", user), ("client-id", client)], ("producer_byte_rate", None)))


@case("DescribeClientQuotas", alone=True)
async def bad_filters(run: Run) -> None:
    await run.ask(described(("planet", EXACT, "x")))
    await run.ask(described(("user", 9, "x")))
    await run.ask(described(("user", EXACT, None)))
    await run.ask(described(("user", DEFAULT, "x")))
    await run.ask(described(("", ANY, None)))
    await run.ask(described(("user", ANY, None), ("user", ANY, None)))
    await run.ask(described(("ip", ANY, None), ("user", ANY, None)))
    await run.ask(described(("user", ANY, None), strict=True))
    await run.ask(described(strict=True))
