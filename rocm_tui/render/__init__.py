"""The words, numbers, tables and JSON that commands and screens share: one renderer a thing."""
