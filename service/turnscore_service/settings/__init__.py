"""Settings: everything that the environment may say. One module for each part of the service that has some."""
