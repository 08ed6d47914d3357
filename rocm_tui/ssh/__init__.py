"""Programs on other hosts, by the person's own ssh: addresses, command lines, lines of text."""
