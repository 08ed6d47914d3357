"""One file a kind of job: `run(job, tell, mark)` gives the result, or raises."""
