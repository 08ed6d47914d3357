"""The names of public classes that have several meanings today.

Each name should mean one thing in the whole tree. Add nothing here; when a rename leaves one class
of a name, remove the name.
"""

AMBIGUOUS = frozenset(
    """
    Agreement Entry Limits
    """.split()
)
