"""Settings: everything that the environment may say. One module for each room that has some."""
