"""Benchmarks, one file per figure. Each prints a table with a peer that was measured in the same run.

`python -m benchmarks` runs them all; `python -m benchmarks.startup` and so on run one.
"""
