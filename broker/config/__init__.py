"""Configuration of brokers, topics and groups: declared properties, parsed settings, dynamic changes."""
