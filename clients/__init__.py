"""Clients of a cluster. Applications import the public ones from `anabranch`."""
