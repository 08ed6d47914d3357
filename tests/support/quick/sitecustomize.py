"""What every Python that tests start does first: look for garbage seldom, and not when it ends.

Half of what such a process costs is going through PyTorch's million objects, of which none is
garbage. tests/conftest.py puts this folder on PYTHONPATH.
"""

import atexit
import gc

gc.set_threshold(200_000, 50, 50)
atexit.register(gc.freeze)
