"""Developers' commands that make tables of the documents."""
