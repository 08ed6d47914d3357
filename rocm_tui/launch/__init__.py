"""`rocm-tui run`: a person's program as our child, its terminal and stderr, its hooks."""
