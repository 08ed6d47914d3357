"""Processes that may do anything: a supervisor over them, the end of all they started, memory that
tells of them when they are dead. Imports nothing of ours."""
