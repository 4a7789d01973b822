"""The dashboard: what a page in a browser shows of a cluster, and the page itself. Served by `control.server`."""
