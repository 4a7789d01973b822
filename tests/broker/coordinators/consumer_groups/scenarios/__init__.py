"""Scenarios of a group whose broker assigns, and what plays them."""
