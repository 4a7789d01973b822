"""Share partitions (KIP-932): members acquire and acknowledge records one by one."""
