"""Client metrics (KIP-714): subscriptions, and the pushes that a broker accepts."""
