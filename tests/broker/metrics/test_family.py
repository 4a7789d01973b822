"""A metric's values, with and without labels."""

from __future__ import annotations

import pytest

from anabranch.broker.metrics.family import GAUGE, Family
from anabranch.broker.metrics.histogram import Histogram


@pytest.mark.parametrize("value", [0, 1.5, Histogram((1.0,))])
def test_single_value_is_a_sample_without_labels(value: float | Histogram) -> None:
    family: Family[None] = Family("sizes", GAUGE, "Sizes.", lambda _: value)
    assert list(family.samples(None)) == [({}, value)]


def test_labelled_values_are_samples_as_they_are() -> None:
    samples = [({"topic": "a"}, 1.0), ({"topic": "b"}, 2.0)]
    family: Family[None] = Family("sizes", GAUGE, "Sizes.", lambda _: samples)
    assert list(family.samples(None)) == samples
