"""`make overload`: more load than the service can carry, and whether it stays honest."""
