"""Do the ranks of a job choose alike? Starts of jobs with cold caches, counted."""
