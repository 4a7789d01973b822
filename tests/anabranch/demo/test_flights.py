from collections import Counter

import pytest

from anabranch.demo import flights


@pytest.mark.costly
def test_all_flights_are_loaded_and_each_aircraft_is_in_order() -> None:
    rows = flights.load()
    assert len(rows) == flights.COUNT
    assert Counter(row.tail_number for row in rows)[flights.NO_AIRCRAFT.encode()] == 2512
    assert flights.load(3) == rows[:3]
    last: dict[bytes, tuple[int, ...]] = {}
    for row in rows:
        _, month, day, _, departure, *_ = row.line.split(b",")
        when = (int(month), int(day), int(departure))
        assert last.get(row.tail_number, ()) <= when
        last[row.tail_number] = when
