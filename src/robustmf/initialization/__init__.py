"""Initial factors, noise level, λ and biases: where the iterations start.

:mod:`~robustmf.initialization.graduated` finds the right basin of attraction for ``init="auto"``;
:mod:`~robustmf.initialization.regularization` chooses λ and biases for ``reg="auto"``.
"""
