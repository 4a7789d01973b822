"""Partitions that groups share: records are acquired one by one, and acknowledged one by one (KIP-932)."""
