"""The quality model learns what a larger sentence encoder finds alike."""
