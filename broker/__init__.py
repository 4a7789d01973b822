"""The broker: listeners, handlers, partition logs, replication and coordinators."""
