"""Stored credentials: SCRAM credentials of users and delegation tokens, as ZooKeeper has them."""
