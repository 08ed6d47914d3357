"""Compiled graphs: which ops their text holds, and with which choice; never loaded, only moved."""
