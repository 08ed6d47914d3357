"""From events to what a screen shows: one model, joining of sources, statistics."""
