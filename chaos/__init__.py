"""Failures in real processes: kill, freeze, cut, delay, expire; and the checkers of their histories.

By hand: `python -m anabranch.chaos --help`. From tests: `chaos.proxy`, `chaos.session`, `chaos.nodes`, `chaos.cluster`.
"""
