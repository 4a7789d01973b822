"""Who a client is and what it may do: principals, ACLs, the authorizer. Low: imports configuration only."""
