"""The command line: words in, an action called, text or JSON out. Only the asked-for command is
loaded."""

from rocm_tui.cli.entry import main as main
