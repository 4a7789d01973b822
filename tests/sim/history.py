"""The history is shared with the runs on real processes: it lives in `chaos.history`."""

from anabranch.chaos.history import *  # noqa: F403
