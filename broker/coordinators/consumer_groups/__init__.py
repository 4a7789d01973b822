"""Consumer groups (KIP-848): who is a member, what each is to have, and how far each has got there."""
