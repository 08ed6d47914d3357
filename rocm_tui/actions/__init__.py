"""What a person can do, once: the command line and the screens both call these."""
