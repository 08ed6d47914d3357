"""One file a screen: what it shows of the model, and what its keys ask of the program."""
