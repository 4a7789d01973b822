"""The metadata that a node caches: brokers, topics, configurations of topics and groups, features."""
