"""Partitioners for other projects' producers, which place keys by a topic's lineage."""
