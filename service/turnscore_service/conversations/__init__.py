"""Live conversations: one session each, and the registry of those that are open."""
