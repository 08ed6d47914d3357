"""One file a command: `add(subparsers)` says its words, `run(args)` does it.

`run` returns the exit code: 0 yes, 1 no. Bad usage is 2, by argparse or by UsageError. Heavy
imports stand inside `run`, so that each command loads only what it needs.
"""
