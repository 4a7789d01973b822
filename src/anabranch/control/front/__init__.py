"""The control plane of a cluster of processes: one HTTP server, which asks the control agents of the nodes."""
