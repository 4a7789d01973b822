"""Faults on request: rules that fail, hold, delay, edit or damage what brokers answer, and tell what they hit."""
