"""Events to rows: the model, the joining of sources, what is known of a tuning and its choices."""
