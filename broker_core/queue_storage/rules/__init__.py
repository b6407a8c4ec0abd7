"""Rules of Queue Storage (QS-): names, limits, options, visibility, arguments and errors. Pure functions, no I/O."""
