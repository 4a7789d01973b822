"""The history is shared with the runs on real processes: it lives in `chaos.history`."""

from chaos.history import *  # noqa: F403
