"""The search for choices that make a graph faster: what is tried next, what is kept, what is sure.
Pure: the graph is run elsewhere."""
