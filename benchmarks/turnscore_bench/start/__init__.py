"""Start: what it takes until a service that was just started has given its first score."""
