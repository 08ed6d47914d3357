"""`python -m rocm_tui` is `rocm-tui`."""

import os.path
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120

from rocm_tui_entry import main

sys.exit(main())
