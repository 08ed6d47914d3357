"""Finding tunings: the fields of a row, the grammar of a filter, what it lets through, in which
order."""
