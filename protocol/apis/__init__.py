"""One module per API: its request and response, for all versions at once."""
