"""One node: puts its parts together, starts and stops them."""
