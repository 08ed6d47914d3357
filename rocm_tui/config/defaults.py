"""What settings are where nobody gave any, of those that are asked for before settings are read."""

FOLDER_DEPTH = 6
