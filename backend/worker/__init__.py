"""A process in the user's torch environment that does one job at a time; see `protocol`."""
