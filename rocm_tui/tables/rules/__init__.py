"""The rules, a file a subject."""
