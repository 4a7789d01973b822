"""What this node knows of the cluster: the metadata cache, configurations of topics and groups, features."""
