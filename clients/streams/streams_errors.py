"""The errors that end a Streams instance, or return it to its last commit."""

from __future__ import annotations


class StreamsError(Exception):
    """The application cannot run: its topics are incompatible, or the group's leader refuses it."""


class TasksMigrated(Exception):
    """The work since the last commit is void: this instance lost its tasks, or its transaction was aborted.

    The instance drops its memory and reads its input again from the last committed offsets.
    """
