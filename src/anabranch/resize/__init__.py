"""Resizes for people: the plan, the lineage, and the affected groups and producers."""
