"""Share groups (KIP-932): members, and the partitions that each one reads. Pure."""
