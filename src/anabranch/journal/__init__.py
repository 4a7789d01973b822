"""The journal: the last exchanges of clients with brokers, for tests that ask what was really said."""
