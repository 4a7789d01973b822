"""Scenarios of a consumer group: texts beside this file, and what is needed to run them (`README.md`)."""
