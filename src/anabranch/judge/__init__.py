"""A second judge of key order, which shares no code with audit, clients and brokers.

It reads a topic and logs of deliveries.
"""
