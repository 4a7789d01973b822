"""Authentication: what a client and a broker say to each other before the client is believed."""
