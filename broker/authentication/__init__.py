"""Authentication: SASL exchanges, tokens, and principals of clients."""
