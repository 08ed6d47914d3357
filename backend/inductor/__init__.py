"""Our part of Inductor: hooks in its selector, additional choices, and their benchmark."""
