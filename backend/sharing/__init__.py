"""Pins in transit: export, import, Inductor's lookup table, mega-cache files."""
