"""Mutation testing: deliberate faults in the code that the tests must notice.

``make mutants`` makes each change of the catalog in a copy of the repository and runs a few
selected tests. A mutant that no test notices has survived: a test is missing, or the change is
equivalent.
"""
