"""A cluster on several hosts, which are network namespaces of this machine."""
