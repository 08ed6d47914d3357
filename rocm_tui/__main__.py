"""`python -m rocm_tui` is `rocm-tui`."""

import sys

from rocm_tui.cli import main

sys.exit(main())
