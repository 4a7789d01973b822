"""The time of a cluster in this process, which users can advance, accelerate or stop."""
