"""Load tests of a running turnscore service on this machine. `locust_*` modules need Locust, which patches sockets."""
