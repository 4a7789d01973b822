"""The demonstration: a year of flights in a topic that is resized during failures, with a live audit."""
