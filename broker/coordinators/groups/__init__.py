"""The group coordinator: all groups of this broker, of every protocol, by shard."""
