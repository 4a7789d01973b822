"""Scenarios of the controller's machine: texts beside this file, and what is needed to run them (`README.md`)."""
