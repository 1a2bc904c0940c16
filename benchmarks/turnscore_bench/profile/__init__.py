"""Where the CPU of a request goes beside inference: by stage and by line of the running service."""
