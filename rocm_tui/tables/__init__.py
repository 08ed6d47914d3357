"""Findings in tuned tables, and lookups that they lack; no files are read here."""
