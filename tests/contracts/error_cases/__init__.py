"""The cases of `tests.contracts.error_codes`, by subject."""
