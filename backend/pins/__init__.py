"""Pins: the file, what holds them in the cache, and how each is doing."""
