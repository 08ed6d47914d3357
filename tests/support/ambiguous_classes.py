"""The names of public classes that have several meanings today.

Each name should mean one thing in the whole tree. Add nothing here; when a rename leaves one class
of a name, remove the name.
"""

AMBIGUOUS = frozenset(
    """
    Agreement Asked Call Change Code Device Doubt Entry Facts Group Kernel Limits Mark Member Place
    Process Program Progress Reader Row Share Step Table TemplateKernel Told
    """.split()
)
