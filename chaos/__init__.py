"""Failures on purpose, in real processes: kill, freeze, cut, delay, expire; and the checkers that say what they broke.

By hand: `python -m anabranch.chaos --help`. From tests: `chaos.proxy`, `chaos.session`, `chaos.nodes`, `chaos.cluster`.
"""
