"""Pins: their file, how the cache holds them, and their state."""
