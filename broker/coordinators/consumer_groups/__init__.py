"""Consumer groups (KIP-848): members, target assignments, and their reconciliation."""
