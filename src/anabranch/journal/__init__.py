"""The journal: the last exchanges between clients and brokers, for tests."""
