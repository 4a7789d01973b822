"""One file per figure. Each prints a table in which a peer, measured in the same run, stands beside every figure.

`python -m benchmarks` runs them all; `python -m benchmarks.startup` and so on run one.
"""
