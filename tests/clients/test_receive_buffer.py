"""Connections of one thread share a buffer; those of two threads do not."""

from __future__ import annotations

import threading

from anabranch.clients.receive_buffer import thread_receive_buffer


def test_receive_buffer_is_shared_within_a_thread_only() -> None:
    found = [thread_receive_buffer()]
    other = threading.Thread(target=lambda: found.extend((thread_receive_buffer(), thread_receive_buffer())))
    other.start()
    other.join()
    assert found[1] is found[2]
    assert found[0] is thread_receive_buffer() is not found[1]
