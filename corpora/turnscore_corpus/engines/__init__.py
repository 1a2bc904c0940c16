"""Ways to get a plan's blocks done: in this process, in several of this machine, or on Ray."""
