"""Pins on their way: export, import, Inductor's lookup table, mega-cache files."""
