"""The cases of `tests.contracts.error_codes`, by what they are about."""
