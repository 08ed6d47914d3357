"""One file a job: `run(arguments, progress)` gives the result, or raises."""
