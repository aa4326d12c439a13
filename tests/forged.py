"""Model files with altered content and a valid checksum."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

import robustmf
from robustmf.exceptions import ModelFileError
from robustmf.io.model_file import insert_checksum


def refused(scratch, content, match=None):
    scratch.write_bytes(content)
    with pytest.raises(ModelFileError, match=match) as caught:
        robustmf.load(scratch)
    assert str(scratch) in str(caught.value)
    assert "\n" not in str(caught.value)


def rewritten(content, alter=lambda document, arrays: None, mark="robustmf", version=1, text=str):
    """The file with its document changed by ``alter`` and then, as text, by ``text``."""
    arrays = dict(from_safetensors(content))
    document = json.loads(arrays["document"].tobytes())
    alter(document, arrays)
    arrays["document"] = np.frombuffer(text(json.dumps(document)).encode(), np.uint8)
    without_checksum = to_safetensors(arrays, {mark: f"{version} {'0' * 64}"})
    return bytes(insert_checksum(bytearray(without_checksum)))


def put(name, value, section="state"):
    return lambda document, arrays: document[section].__setitem__(name, value)


def drop(name, section="state"):
    def alter(document, arrays):
        value = document[section].pop(name)
        if isinstance(value, dict) and "array" in value:
            del arrays[value["array"]]

    return alter


def reshape(name, change):
    def alter(document, arrays):
        place = document["state"][name]
        arrays[place["array"]] = change(arrays[place["array"]])
        place["dtype"] = arrays[place["array"]].dtype.name

    return alter


def reenter(name, change):
    def alter(document, arrays):
        place = document["state"]["entries_"]["dict"][name]
        arrays[place["array"]] = change(arrays[place["array"]])
        place["dtype"] = arrays[place["array"]].dtype.name

    return alter


def put_nan(array):
    array = array.copy()
    array.flat[0] = np.nan
    return array


def changed(position, value):
    def change(array):
        array = array.copy()
        array[position] = value
        return array

    return change
