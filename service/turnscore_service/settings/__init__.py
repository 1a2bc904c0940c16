"""Settings: everything that the environment may say. One module for each part that has some."""
