"""Engines that process a plan's blocks: in this process, in several processes of this machine, or on Ray."""
