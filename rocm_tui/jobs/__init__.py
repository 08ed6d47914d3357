"""Jobs in workers: one worker's life and its limits, what becomes of a job, the queue."""
