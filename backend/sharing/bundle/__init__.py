"""All that lets a service start warm, in one file, checked where it arrives.

A bundle is a `.tar.gz` that other programs can list. `manifest.json` is its first member: what it
was made with, then name, size and SHA-256 of each other member, in the order in which they follow.
The names are paths below Inductor's cache dir.

parts -> manifest -> archive -> pack, fit -> arrive
"""
