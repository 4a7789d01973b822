"""Scenarios of a consumer group: text files, and their runner (`README.md`)."""
