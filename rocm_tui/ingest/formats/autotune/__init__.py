"""The tables that Inductor prints while it autotunes, among anything else in a program's log."""
