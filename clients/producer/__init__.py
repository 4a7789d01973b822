"""The producer: accumulator, switch and sender under one public class."""
