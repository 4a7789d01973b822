"""What is looked at, a module each. Between two events of the loop, from the nodes themselves; nothing waits."""
