"""Runs of random faults on clusters of real processes, and checkers of their histories.

From a shell: `python -m anabranch.chaos --help`. From tests: `chaos.cluster`, `chaos.run`.
"""
