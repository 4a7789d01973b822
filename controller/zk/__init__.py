"""The ZooKeeper port: paths and bodies of every znode, the session, and its adapters."""
