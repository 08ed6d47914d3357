"""Our part of Inductor: hooks in its selector, choices beside its own, and their benchmark."""
