"""The controller: state machines for leadership, and for topics that grow and shrink while keys keep their order."""
