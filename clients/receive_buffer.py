"""Where all bytes land that this thread reads from sockets, whichever connection they are of.

A loop reads from one socket after another, so that its connections need no buffer each: idle ones hold none. Threads
read at the same time, and have one each. A connection is made in the thread that reads from it.
"""

from __future__ import annotations

import threading
from typing import Final

from anabranch.protocol.framing import ReceiveBuffer

_of_thread: Final = threading.local()


def thread_receive_buffer() -> ReceiveBuffer:
    """The one of this thread."""
    try:
        known: ReceiveBuffer = _of_thread.landing
    except AttributeError:
        known = _of_thread.landing = ReceiveBuffer()
    return known
