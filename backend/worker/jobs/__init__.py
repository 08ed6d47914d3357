"""One file for each kind of job: `run(job, progress, mark)` returns the result, or raises."""
