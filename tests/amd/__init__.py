"""One command for people with an AMD GPU: `python -m tests.amd` tries everything for ten minutes
and writes one report without personal data."""
