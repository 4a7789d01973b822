"""Authorization: principals, ACLs and the authorizer. Imports only configuration from other packages."""
