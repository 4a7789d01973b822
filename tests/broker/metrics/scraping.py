"""A Prometheus scrape: HTTP over a socket, and the library's parser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from anabranch.broker.metrics.endpoint import Endpoint


@dataclass(frozen=True)
class Scrape:
    """The result of one scrape: (name, labels) -> value."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def of(self, name: str, **labels: str) -> dict[str, float]:
        """node -> value, among the samples that have these labels and no others."""
        return {
            dict(found)["node"]: value
            for (sample, found), value in self.values.items()
            if sample == name and {key: text for key, text in found if key != "node"} == labels
        }

    def total(self, name: str, **labels: str) -> float:
        """Over all nodes."""
        return sum(self.of(name, **labels).values())


async def exchange(url: str, head: str) -> tuple[str, str, str]:
    """Status line, headers and body of what is answered to these bytes."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(head.encode())
        async with asyncio.timeout(60):
            answer = (await reader.read()).decode()
    finally:
        writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    status, _, headers = head.partition("\r\n")
    return status, headers, body


async def get(url: str, *more: str, method: str = "GET") -> tuple[str, str, str]:
    """A well-formed request."""
    lines = [f"{method} {urlsplit(url).path} HTTP/1.1", "Host: test", *more]
    return await exchange(url, "\r\n".join(lines) + "\r\n\r\n")


async def scrape(endpoint: Endpoint) -> Scrape:
    """All samples of an endpoint, each with labels that no other has."""
    status, _, body = await get(endpoint.url)
    assert status == "HTTP/1.1 200 OK"
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(body):
        assert family.documentation, f"{family.name} has no help"
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in values, f"{key} twice"
            values[key] = sample.value
    return Scrape(values)
