"""Resizes as a person reads them: the plan, the lineage, and the groups and producers that it affects."""
