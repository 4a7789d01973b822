"""One module per API: decode nothing, encode nothing, ask the services, answer."""
