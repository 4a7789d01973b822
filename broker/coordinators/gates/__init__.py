"""The order gates that a coordinator enforces for stock members."""
