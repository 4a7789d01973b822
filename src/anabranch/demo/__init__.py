"""The demonstration: a year of flights through a topic that is resized under fire, audited while it happens."""
