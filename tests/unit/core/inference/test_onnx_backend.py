"""The runtime library, and what the CPU can do."""

import builtins
import gc
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from support.bundles import save_encoder_graph
from turnscore_core.inference import onnx_backend as onnx_library
from turnscore_core.inference.onnx_backend import (
    DeviceError,
    int8_saturates,
    load_onnxruntime,
    missing_library,
    open_session,
)


def refuse(monkeypatch, error):
    def fail(name):
        raise error

    monkeypatch.setattr(onnx_library, "import_module", fail)


def test_a_missing_runtime_is_one_sentence_that_names_the_extras(monkeypatch):
    refuse(monkeypatch, ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime"))
    with pytest.raises(DeviceError, match=r"^ONNX Runtime is not installed: install the extra `cpu` of turnscore,"):
        load_onnxruntime()


def test_the_service_can_be_imported_without_a_runtime():
    script = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "import turnscore_core.model_loader, turnscore_service.api.http.app\n"
        "from turnscore_core.load_settings import LoadSettings\n"
        "from turnscore_core.inference.onnx_backend import DeviceError\n"
        "try: turnscore_core.model_loader.load_scorers(LoadSettings())\n"
        "except DeviceError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ONNX Runtime is not installed: install the extra `cpu`")


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("libcudnn.so.9: cannot open shared object file: No such file or directory", "libcudnn.so.9"),
        ("/x/libonnxruntime_providers_cuda.so: undefined symbol: Provider_GetHost", None),
    ],
)
def test_a_missing_library_is_read_from_what_the_loader_says(monkeypatch, text, library):
    def load(path):
        assert Path(path).name == "libonnxruntime_providers_cuda.so"
        raise OSError(text)

    monkeypatch.setattr(onnx_library, "ctypes", SimpleNamespace(CDLL=load))
    assert missing_library() == library


def test_libraries_are_loaded_without_a_word_on_stdout(monkeypatch, capsys):
    loud = SimpleNamespace(InferenceSession=object, preload_dlls=lambda: builtins.print("Failed to load"))
    monkeypatch.setattr(onnx_library, "import_module", lambda _: loud)
    onnx_library.load_cuda_libraries.cache_clear()
    onnx_library.load_cuda_libraries()
    onnx_library.load_cuda_libraries.cache_clear()
    assert capsys.readouterr().out == ""


PROCESSORS = [
    ("x86_64", "fpu avx2 avx512f", True),
    ("x86_64", "fpu avx2 avx512f avx512_vnni", False),
    ("aarch64", "fp asimd", False),
]


@pytest.mark.parametrize(("machine", "flags", "saturates"), PROCESSORS)
def test_products_saturate_on_x86_without_wide_sums(tmp_path, machine, flags, saturates):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: X\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert int8_saturates(machine, cpuinfo) is saturates


def test_equal_graphs_are_one_session_while_one_of_them_is_in_use(tmp_path):
    save_encoder_graph(tmp_path / "a.onnx", seed=82)
    save_encoder_graph(tmp_path / "b.onnx", seed=82)
    save_encoder_graph(tmp_path / "other.onnx", seed=83)
    first = open_session(tmp_path / "a.onnx", threads=1)
    assert open_session(tmp_path / "b.onnx", threads=1) is first
    assert open_session(tmp_path / "other.onnx", threads=1) is not first
    assert open_session(tmp_path / "b.onnx", threads=2) is not first
    watched = weakref.ref(first)
    del first
    gc.collect()
    assert watched() is None, "no scorer uses it"


def test_graphs_whose_weights_lie_in_other_files_are_never_one_session(tmp_path):
    for place, seed in enumerate((0, 1)):
        folder = tmp_path / str(place)
        folder.mkdir()
        save_encoder_graph(folder / "graph.onnx", seed=seed)
        model = onnx.load(folder / "graph.onnx")
        (folder / "graph.onnx").unlink()
        onnx.save(model, folder / "graph.onnx", save_as_external_data=True, location="weights", size_threshold=100)
    graphs = [(tmp_path / place / "graph.onnx") for place in ("0", "1")]
    assert graphs[0].read_bytes() == graphs[1].read_bytes()
    feeds = {"input_ids": np.array([[5, 6]]), "attention_mask": np.array([[1, 1]])}
    one, other = (open_session(each, threads=1).run(None, feeds)[0] for each in graphs)
    assert not np.allclose(one, other)
