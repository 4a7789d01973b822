"""Keeps the replicas of partitions alike: leaders, followers, the ISR, and requests that wait for either."""
