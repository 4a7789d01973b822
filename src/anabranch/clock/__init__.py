"""The time of a cluster in this process, in the hands of users."""
