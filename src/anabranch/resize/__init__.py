"""Text about resizes: the plan, the lineage, and the affected groups and producers."""
