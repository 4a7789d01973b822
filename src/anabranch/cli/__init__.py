"""Subcommands of `anabranch`, each imported when it is called."""
