"""The face: the `anabranch` command, cluster launchers and the pytest plugin."""
