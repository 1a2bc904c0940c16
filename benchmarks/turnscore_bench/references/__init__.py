"""Reference metrics on a million pairs: how long `turnscore references` takes, and how much memory."""
