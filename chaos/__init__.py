"""Fault injection in real processes (kill, freeze, cut, delay, expire), and checkers of their histories.

From a shell: `python -m anabranch.chaos --help`. From tests: `chaos.nodes`, `chaos.cluster`.
"""
