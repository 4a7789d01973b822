"""The dashboard: a web page, and the cluster state that it shows. Served by `control.server`."""
