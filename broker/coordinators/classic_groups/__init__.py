"""Consumer groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
