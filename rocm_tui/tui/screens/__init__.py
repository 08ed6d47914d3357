"""One file per screen: what it shows of the model, and what its keys do."""
