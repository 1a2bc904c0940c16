"""Models that judge a response in its context, as bundles that the service loads: relevance and USR."""
