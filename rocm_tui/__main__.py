"""`python -m rocm_tui` is `rocm-tui`."""

import sys

from rocm_tui.cli.entry import main

sys.exit(main())
