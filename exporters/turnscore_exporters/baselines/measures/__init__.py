"""A trained system's agreement with people, and its scores of wrong responses. Trains nothing."""
