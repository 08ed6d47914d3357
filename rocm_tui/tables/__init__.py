"""What follows from tuned tables and from what programs asked them for: no files are read here."""
