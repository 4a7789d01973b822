"""Groups whose members share partitions: who is a member, and which partitions each one reads (KIP-932). Pure."""
