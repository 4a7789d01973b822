"""Logic of administrative requests: topic creation, configurations, ACLs, tokens, shrink checks."""
