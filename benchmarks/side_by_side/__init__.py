"""Ten tasks of a new user with robustmf and others: lines of code, and what comes back.

Every library has a module named ``with_LIBRARY``: a function for each task that it can do, and in
``NOT_OFFERED`` the reason where it cannot. ``python -m benchmarks.side_by_side LIBRARY`` runs one
in an environment that has the library (robustmf is needed by its own module only), and writes the
results to ``benchmarks/side_by_side/record.json``, which the page docs/background/side-by-side.md
shows.
"""
