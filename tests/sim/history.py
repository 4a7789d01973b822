"""The history, shared with runs on real processes: `chaos.history`."""

from anabranch.chaos.history import *  # noqa: F403
