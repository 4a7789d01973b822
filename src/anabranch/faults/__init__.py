"""Fault rules: they fail, hold, delay, edit or damage responses of brokers, and count their hits."""
