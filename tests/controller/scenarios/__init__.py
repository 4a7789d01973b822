"""Scenarios of the controller's state machine: text files, and their runner (`README.md`)."""
