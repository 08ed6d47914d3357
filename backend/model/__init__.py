"""What both sides speak of: frozen data in Inductor's own words, without torch."""
