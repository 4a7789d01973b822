"""The control plane: actions on a running cluster, and queries of its state."""
