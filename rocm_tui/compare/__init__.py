"""Two sets of tunings side by side: what became slower, what is only noise."""
