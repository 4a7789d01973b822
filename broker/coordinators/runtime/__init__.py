"""What all coordinators share: journals, leadership of internal topics, timers, failpoints."""
