"""This node's membership in its cluster: registration, the link to the controller, connections to other brokers."""
