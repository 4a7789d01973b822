"""What handlers of administrative requests share: topic creation, configurations, ACLs, tokens, shrink checks."""
