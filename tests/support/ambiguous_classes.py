"""The names of public classes that have several meanings: none. Add nothing here."""

AMBIGUOUS: frozenset[str] = frozenset()
