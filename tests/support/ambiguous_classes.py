"""The names of public classes that have several meanings today.

Each name should mean one thing in the whole tree. Add nothing here; when a rename leaves one class
of a name, remove the name.
"""

AMBIGUOUS = frozenset(
    """
    Agreement Asked Call Change Code Compiled Device Differing Done Doubt Ended Entry Facts
    Finding Gain Gone GraphText Group Hit Kernel Limits Mark Member News Offer Pair Part Place
    Process Program Progress Proof Proposal Pulse Reader Record Row Rule Run Share Single Site
    Standing Start Step Table Taken TemplateKernel Told Trouble Use Wanted Work
    Access Agreement Answer Asked Bench Call Calls Change Code Compile Compiled Computed
    Device Difference Digit Done Doubt Ended Entry Facts Gone Gpu
    Group Kernel Library Limits Mark Member NotCompiled NotMeasured
    NotTried NotTuned NotVerified Offer Options Place Process Program Progress
    Pulse Reader Record Refused Row Rule Run Seen Share Single
    SingleChoice Site Source Start Step Sums Table TemplateKernel Told
    Trouble Unit Visits Wanted WrongResult
    Access Agreement Answer Asked Bench Call Calls Change Check Code Compile Compiled Computed
    Device Difference Differing Digit Done Doubt Ended Entry Facts Finding Gain Gone Gpu
    GraphText Group Hit Kernel Launch Library Limits Mark Member News NotCompiled NotMeasured
    NotTried NotTuned NotVerified Offer Options Pair Part Place Process Program Progress
    Proof Proposal Pulse Reader Record Refused Row Rule Run Seen Share Single
    SingleChoice Site Source Standing Step Sums Table Taken TemplateKernel Told
    Trouble Unit Use Visits Wanted Work WrongResult
    """.split()
)
