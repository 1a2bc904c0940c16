"""The score cache: keys, entries, two levels. A failing level is a miss; nothing in here raises into a request."""
