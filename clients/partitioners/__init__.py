"""Partitioners for other projects' producers: keys where a topic's lineage wants them, like our own producer's."""
