"""Request handlers, one module per API: each calls the services and returns a response."""
