"""The control plane: what users may do to a cluster that runs, and what they may ask of it."""
