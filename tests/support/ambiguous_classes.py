"""The names of public classes that have several meanings today.

Each name should mean one thing in the whole tree. Add nothing here; when a rename leaves one class
of a name, remove the name.
"""

AMBIGUOUS = frozenset(
    """
    Agreement Asked Call Change Code Compiled Device Done Doubt Ended Entry Facts Gone Group Kernel
    Limits Mark Member Offer Place Process Program Progress Pulse Reader Record Row Run Share Single
    Site Step Table TemplateKernel Told Trouble Wanted
    """.split()
)
