"""The runtime of all coordinators: journals, leadership of internal topics, timers, failpoints."""
