"""Every measurement of robustmf and the reproduction of the paper, with their records.

A benchmark is a module of this package named in :mod:`benchmarks.registry`. It has

- a docstring whose first line states what is measured,
- ``run(**options)``, which measures and returns plain data; every option has a default,
- ``SMALL``, options with which ``run`` takes seconds; its figures then mean nothing,
- ``table(results)``, which gives the results as Markdown,
- optionally ``figure(results)``, which draws them with Matplotlib.

``python -m benchmarks NAME --record`` runs one and writes ``benchmarks/records/NAME.json``;
``python -m benchmarks tables`` writes docs/background/benchmarks.md from the records.
"""
