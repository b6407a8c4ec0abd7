"""Dead letters of all entities and families: groups, and what operators do with them: note, repair, try, resubmit."""
