"""Goal: connections of one thread share a buffer, and those of two never do: both may read at the same time."""

from __future__ import annotations

import threading

from anabranch.clients.landing import landing_here


def test_a_thread_has_one_and_another_thread_has_another() -> None:
    found = [landing_here()]
    other = threading.Thread(target=lambda: found.extend((landing_here(), landing_here())))
    other.start()
    other.join()
    assert found[1] is found[2]
    assert found[0] is landing_here() is not found[1]
