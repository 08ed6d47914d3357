"""Where the ranks of several hosts meet: torch's own store."""
