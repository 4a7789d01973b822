"""Scenarios of groups of Kafka Streams."""
