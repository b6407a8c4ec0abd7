"""An entity's page at an instant of the past (?at=), as a list or as a board. It has no actions."""
