"""What a person can do, once: commands and screens both call these."""
