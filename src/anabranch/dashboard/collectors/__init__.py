"""Collectors of the cluster state for the dashboard, one module for each kind of row.

They run between two events of the loop, read the nodes directly, and never await.
"""
