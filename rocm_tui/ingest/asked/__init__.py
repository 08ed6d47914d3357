"""What programs asked other tuners' tables for, and what came of it, as their logs and untuned
lists say it: one file a tuner. docs/tables.md names the sources of each line's form.
"""
