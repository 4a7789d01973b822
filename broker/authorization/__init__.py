"""Authorization: principals, ACLs, the authorizer. Low: imports configuration only."""
