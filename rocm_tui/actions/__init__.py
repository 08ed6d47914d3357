"""The actions of a person, which the command line and the screens share."""
