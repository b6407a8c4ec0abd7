"""Front ends: a folder for each protocol. Each can be deleted together with its one line of routing."""
