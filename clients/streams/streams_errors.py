"""The errors with which a Streams instance ends, or goes back to its last commit."""

from __future__ import annotations


class StreamsError(Exception):
    """The application cannot run as it is: its topics do not fit, or the leader of its group refuses it."""


class TasksMigrated(Exception):
    """The work since the last commit is void: this instance lost its tasks, or its transaction was aborted.

    The instance forgets what is in memory and reads its input again from the last committed offsets.
    """
