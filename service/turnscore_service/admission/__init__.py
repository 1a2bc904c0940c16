"""Room for requests: who gets in, who waits, who is refused."""
