"""Queries of a running cluster: lag and gates of groups, draining partitions, records as text."""
