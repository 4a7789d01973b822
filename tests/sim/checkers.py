"""The checkers are shared with the runs on real processes: they live in `chaos.checkers`."""

from chaos.checkers import *  # noqa: F403
