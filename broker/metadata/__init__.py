"""The node's view of the cluster: the metadata cache, configurations of topics and groups, features."""
