"""The names of public classes that have several meanings today.

Each name should mean one thing in the whole tree. Add nothing here; when a rename leaves one class
of a name, remove the name.
"""

AMBIGUOUS = frozenset(
    """
    Access Agreement Answer Asked Bench Call Calls Change Check Code Compile Compiled Computed
    Device Difference Differing Digit Done Doubt Ended Entry Facts Finding Gain Gone Gpu
    GraphText Group Hit Kernel Launch Library Limits Mark Member News NotCompiled NotMeasured
    NotTried NotTuned NotVerified Offer Options Pair Part Place Process Program Progress
    Proof Proposal Pulse Reader Record Refused Row Rule Run Seen Share Single
    SingleChoice Site Source Standing Step Sums Table Taken TemplateKernel Told
    Trouble Unit Use Visits Wanted Work WrongResult
    """.split()
)
