"""Checkpoints: identity, state, and resuming."""

from __future__ import annotations

from mutants.mutant import Mutant

_CHECKPOINT = "io/test_checkpoint.py io/test_refused_checkpoints.py"
_PARTS = "io/test_refused_checkpoints.py -k 'device or digests or saved_arrays'"
_WAYS = "io/test_checkpoint.py -k 'every_iteration and float64'"

MUTANTS = [
    Mutant(
        "io/checkpoint.py",
        '"weights": None if weights is None else digest(weights),',
        '"weights": None,',
        _CHECKPOINT + " -k weights",
        aimed=True,
    ),
    Mutant(
        "io/checkpoint.py",
        '"X": digest(rows.pointers, rows.indices, rows.values),',
        '"X": digest(rows.pointers, rows.indices),',
        _CHECKPOINT + " -k 'other or another or refus'",
        aimed=True,
    ),
    Mutant(
        "io/checkpoint.py",
        'digest_of_ids(observed) if settings["validation_fraction"] is not None else None',
        "None",
        _CHECKPOINT + " -k other_ids",
    ),
    Mutant(
        "io/checkpoint.py",
        'settings["validation_fraction"] is not None',
        "True",
        _CHECKPOINT + " -k other_ids",
    ),
    Mutant(
        "io/checkpoint.py",
        '"random_state": seed if self.seeded else None,',
        '"random_state": None,',
        _CHECKPOINT,
    ),
    Mutant("io/checkpoint.py", '            "device": self.device,\n', "", _PARTS, aimed=True),
    Mutant(
        "io/checkpoint.py",
        "        require_same_fit(self.path, saved.parameters, identity)\n",
        "",
        _CHECKPOINT + " -k 'other or another or refus'",
    ),
    Mutant(
        "io/checkpoint.py",
        "        if is_new:\n            progress.write()\n",
        "        if is_new:\n            pass\n",
        _CHECKPOINT,
    ),
    Mutant(
        "io/checkpoint.py",
        "            progress.write_unchanged()",
        "            pass",
        _CHECKPOINT + " -k 'cannot_be_written'",
        aimed=True,
    ),
    Mutant(
        "io/checkpoint.py",
        '        if value.dtype.kind not in "biuf" or not np.isfinite(value).all():',
        "        if False:",
        _CHECKPOINT + " -k 'invalid'",
        aimed=True,
    ),
    Mutant(
        "io/fit_identity.py",
        "    except (TypeError, ValueError, ArithmeticError):\n        return False",
        "    except (TypeError, ValueError):\n        return False",
        _CHECKPOINT + " -k 'compared'",
        aimed=True,
    ),
    Mutant(
        "solvers/base.py",
        "            require_same_layout(outcome.best, keep())",
        "            pass",
        _CHECKPOINT + " -k 'invalid'",
        aimed=True,
    ),
    Mutant(
        "initialization/state.py",
        "if scales.shape != biases.shape or not (scales > 0).all():",
        "if scales.shape != biases.shape:",
        _CHECKPOINT + " -k 'invalid'",
        aimed=True,
    ),
    Mutant(
        "io/fit_identity.py",
        'seed["pool"] <= _MAX_POOL',
        "True",
        "io/test_forged_files.py -k 'seed and 2000'",
        aimed=True,
    ),
    Mutant(
        "io/fit_identity.py",
        '        checksum.update(f"{host.dtype.str} {host.shape} ".encode())\n',
        "",
        _PARTS,
        aimed=True,
    ),
    Mutant(
        "io/checkpoint.py",
        "        return elapsed >= self.progress.checkpoint.every",
        "        return True",
        _CHECKPOINT,
    ),
    Mutant(
        "solvers/smoothing.py",
        "        self.width, self._decrease, self._rate = state",
        "        self.width, self._decrease, _ = state",
        "solvers/test_smoothing.py -k restored",
        aimed=True,
    ),
    Mutant(
        "solvers/smoothing.py",
        "        self.width, self._decrease, self._rate = state",
        "        self.width, _, self._rate = state",
        "solvers/test_smoothing.py -k restored",
        aimed=True,
    ),
    Mutant(
        "solvers/irls.py",
        '        self._smoothing.restore(state["smoothing"])\n',
        "",
        _WAYS + " -k nonsmooth",
    ),
    Mutant("solvers/irls.py", '        self._momentum = state["momentum"]\n', "", _WAYS),
    Mutant(
        "solvers/irls.py",
        '            "previous": self._previous,',
        '            "previous": self._point,',
        _WAYS,
    ),
    Mutant("solvers/varpro.py", '        self._steps.damping = state["damping"]\n', "", _WAYS),
    Mutant(
        "solvers/mm/solver.py",
        '            self._inner.restore(state["inner"], dual_point)\n',
        "",
        _WAYS,
    ),
    Mutant(
        "solvers/base.py",
        "A.shape != B.shape or A.dtype != B.dtype",
        "A.shape != B.shape",
        _PARTS,
        aimed=True,
    ),
]
