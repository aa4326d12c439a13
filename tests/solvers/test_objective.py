"""The paper's λ; also the test of a mutant in test_mutants.py, because it is fast."""

from robustmf.solvers.objective import paper_reg


def test_the_papers_regularization():
    assert paper_reg((6, 4)) == 2.0
