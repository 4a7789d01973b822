"""The properties of brokers, topics and groups: their declaration, their values, and changes at run time."""
