"""The built-in ZooKeeper server: ZooKeeper's wire protocol for a tree of this process."""
