"""Clusters on this machine: in one process, or as several processes, with local ZooKeeper servers."""
