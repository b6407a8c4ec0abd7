"""Operations as code: what a page's button does, as a program that does the same against this site.

code.py puts snippets together; of.py says what a page shows; each family has a module with its operations (FamilyPages.snippets):
by name, a function of an address and arguments. The names and arguments are those of the actions in lesson files.
"""
