"""The cluster's state machines: who leads what, and how topics grow and shrink without losing the order of keys."""
