"""The systems themselves, a module each, and the networks and scales that several share. Reads no file of data."""
