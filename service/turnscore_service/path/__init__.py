"""The path of a request, from its checks to its scores; the same for every door."""
