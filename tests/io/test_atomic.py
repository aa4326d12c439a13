"""Files are replaced atomically, whatever fails while they are written."""

from __future__ import annotations

import errno
import os
import re
import stat
from itertools import count

import pytest

import robustmf
from robustmf import RobustMF
from robustmf.datasets import make_synthetic
from robustmf.io import atomic
from robustmf.io.atomic import discard_leftovers, replacing, write_atomically
from stress.system_calls import (
    CALLS,
    ERRORS,
    TARGETS,
    attempt,
    attempt_and_kill,
    require_complete,
)

MODEL = RobustMF(2, random_state=0, n_jobs=1).fit(
    make_synthetic(40, rank=2, observed=0.6, random_state=0).train
)


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", TARGETS)
def test_a_fault_of_any_system_call_leaves_a_complete_file(tmp_path, kind, error, after, existed):
    target = TARGETS[kind]
    target.write(tmp_path / "imports", 1)
    failed = []
    for number in count():
        path = tmp_path / f"file{number}"
        if existed:
            target.write(path, 0)
        call = attempt(target, path, number, ERRORS[error], after)
        require_complete(target, path, existed)
        if not call:
            break
        failed.append(call)
    assert set(failed) == set(CALLS) - (set() if existed else {"fchmod"})
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", TARGETS)
def test_a_process_killed_at_any_system_call_leaves_a_complete_file(tmp_path, kind, after, existed):
    target = TARGETS[kind]
    target.write(tmp_path / "imports", 1)
    path = tmp_path / "file"
    killed = True
    for number in count():
        path.unlink(missing_ok=True)
        if existed:
            target.write(path, 0)
        killed = attempt_and_kill(target, path, number, after)
        require_complete(target, path, existed)
        discard_leftovers(path)
        assert sorted(os.listdir(tmp_path)) in (["file", "imports"], ["imports"])
        if not killed:
            break
    assert number >= 7
    assert target.version(path) == 1


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    made = []
    for name in ("write", "fsync", "replace"):
        original = getattr(os, name)

        def call(*arguments, name=name, original=original):
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            made.append("fsync of the folder" if is_folder else name)
            return original(*arguments)

        monkeypatch.setattr(os, name, call)
    MODEL.save(tmp_path / "model")
    assert made == ["write", "fsync", "replace", "fsync of the folder"]


def test_folders_that_cannot_be_flushed_are_accepted(tmp_path, monkeypatch):
    original = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "folders cannot be flushed")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_permissions_of_an_existing_file_are_kept(tmp_path, mode):
    path = tmp_path / "model"
    MODEL.save(path)
    path.chmod(mode)
    MODEL.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_temporary_file_is_never_more_accessible(tmp_path):
    path = tmp_path / "file"
    path.touch(0o600)
    previous = os.umask(0)
    try:
        with replacing(path):
            (temporary,) = tmp_path.glob(".*")
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    finally:
        os.umask(previous)


@pytest.mark.parametrize("exists", [True, False])
def test_symbolic_links_are_followed(tmp_path, exists):
    real = tmp_path / "data" / "model-1"
    real.parent.mkdir()
    if exists:
        real.write_bytes(b"old")
    link = tmp_path / "current"
    link.symlink_to(real)
    MODEL.save(link)
    assert link.is_symlink()
    assert robustmf.load(real).rank == 2


def test_a_read_only_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match=re.escape(str(path))):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_devices_and_pipes_are_written_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    before = os.stat(os.devnull).st_ino
    write_atomically(os.devnull, b"content")
    assert os.stat(os.devnull).st_ino == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="requires /dev/full")
@pytest.mark.parametrize("write", [MODEL.save, MODEL.report])
def test_a_full_device_is_reported_by_name(write):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write("/dev/full")


def test_an_open_file_of_the_process_is_not_replaced(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        write_atomically(f"/dev/fd/{file.fileno()}", b"content")
        assert os.fstat(file.fileno()).st_ino == path.stat().st_ino
    assert path.read_bytes() == b"content"


def test_temporary_names_cannot_be_predicted_or_reused(tmp_path, monkeypatch):
    path = tmp_path / "file"
    names = []
    for _ in range(2):
        with replacing(path):
            names += [one.name for one in tmp_path.glob(".*")]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"\.file\.[0-9a-f]{16}\.tmp", name) for name in names)
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _: "0" * 16)
    victim = tmp_path / "victim"
    victim.write_bytes(b"other")
    (tmp_path / f".file.{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(path, b"content")
    assert victim.read_bytes() == b"other"


@pytest.mark.parametrize("name", ["a" * 250, "é" * 120])
def test_names_of_any_length(tmp_path, name):
    write_atomically(tmp_path / name, b"x")
    assert os.listdir(tmp_path) == [name]


def test_an_error_in_the_context_keeps_the_file_and_the_error(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half():
        with replacing(path) as file:
            file.write(b"half")
            raise FileNotFoundError(errno.ENOENT, "not there", "source.csv")

    with pytest.raises(FileNotFoundError, match=r"source\.csv"):
        write_half()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_first_of_two_errors_is_reported(tmp_path, monkeypatch):
    """A device that fails may not let the temporary file be removed either."""

    def failing(number):
        def call(*_):
            raise OSError(number, os.strerror(number))

        return call

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC))
        patch.setattr(os, "unlink", failing(errno.EIO))
        with pytest.raises(OSError, match="No space left") as caught:
            write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"


def test_only_leftovers_of_this_file_are_discarded(tmp_path):
    others = [".file.tmp", f".other.{'0' * 16}.tmp", f".file.{'g' * 16}.tmp", "file"]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / f".file.{'0' * 16}.tmp").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    discard_leftovers(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "link"])
