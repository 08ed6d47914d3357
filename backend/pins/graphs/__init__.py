"""Compiled graphs: the ops in their text and the choices they call; never loaded, only moved."""
