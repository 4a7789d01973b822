"""ZooKeeper behind one port: paths and bodies of every znode, the session, and its adapters."""
