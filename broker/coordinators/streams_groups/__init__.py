"""Groups of Kafka Streams whose broker deals the tasks (KIP-1071): topologies, tasks, members, epochs. Pure."""
