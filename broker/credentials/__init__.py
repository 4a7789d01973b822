"""Stored credentials: SCRAM credentials of users and delegation tokens, in ZooKeeper's format."""
