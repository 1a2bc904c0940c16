"""The running service: doors, pipeline, scorers and inference."""
