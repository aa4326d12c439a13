"""Initial factors, noise level, λ and biases: where the iterations start.

:mod:`~robustmf.initialization.pipeline` has the steps in their order,
:mod:`~robustmf.initialization.state` their result.
"""
