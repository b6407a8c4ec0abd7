"""Pages that every family has, and the frames that the pages of a family are built from."""
