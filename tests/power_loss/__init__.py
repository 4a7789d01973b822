"""Power failures at every write of a broker's logs and of ZooKeeper's journal, on real files."""
