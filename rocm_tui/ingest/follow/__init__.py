"""Files, folders and standard input, followed: what came, and what is no longer so."""
