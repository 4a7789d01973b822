"""One node: the assembly of its parts, their start and their stop."""
