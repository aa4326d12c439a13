"""Recommendations on the GPU, which a benchmark measures."""

from __future__ import annotations

import numpy as np

from conftest import needs_gpu, random_problem
from robustmf.kernels.team import Team


@needs_gpu
def test_top_columns_exclude_observed_entries():
    import torch  # noqa: PLC0415

    from benchmarks.gpu_recommend import top_columns  # noqa: PLC0415
    from robustmf.backends.cuda.backend import CUDABackend  # noqa: PLC0415
    from robustmf.backends.cuda.operations import CUDAOperations  # noqa: PLC0415

    observed, U, V = random_problem()
    made = CUDABackend().observe(observed)
    with Team(1) as team:
        columns, values = top_columns(
            torch.from_numpy(U).to(made.device),
            torch.from_numpy(V).to(made.device),
            3,
            CUDAOperations(made, team),
        )
    scores = U @ V.T
    scores[observed.rows.group_of_entry(), observed.rows.indices] = -np.inf
    wanted = np.argsort(-scores, axis=1)[:, :3]
    np.testing.assert_array_equal(columns.cpu().numpy(), wanted)
    np.testing.assert_allclose(values.cpu().numpy(), np.take_along_axis(scores, wanted, 1))
