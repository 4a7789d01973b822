"""Clusters that this machine runs: in one process, as processes, and the ZooKeeper servers beside them."""
