"""The score cache: keys, entries, two levels. A sick level is a miss; nothing in here raises into a request."""
