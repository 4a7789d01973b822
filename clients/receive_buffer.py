"""The receive buffer that all connections of a thread share.

A loop reads from one socket after another, so its connections need no buffer each: idle ones hold none. Each thread has
its own. A connection must be created in the thread that reads from it.
"""

from __future__ import annotations

import threading
from typing import Final

from anabranch.protocol.framing import ReceiveBuffer

_of_thread: Final = threading.local()


def thread_receive_buffer() -> ReceiveBuffer:
    """Return the current thread's buffer."""
    try:
        known: ReceiveBuffer = _of_thread.landing
    except AttributeError:
        known = _of_thread.landing = ReceiveBuffer()
    return known
