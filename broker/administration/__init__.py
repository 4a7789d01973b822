"""Logic of admin requests: topic creation, configurations, ACLs, delegation tokens, shrink checks."""
