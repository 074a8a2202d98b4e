"""The notebooks of the documentation in a real Jupyter kernel."""

import asyncio
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="runs in make test-frameworks")
nbformat = pytest.importorskip("nbformat", reason="runs in make test-frameworks")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebook_is_valid_and_runs_in_a_kernel(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    stored = [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    resources = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=300, resources=resources)
    asyncio.run(client.async_execute())
    shown = [
        len(
            [
                output
                for output in cell.outputs
                if output.output_type != "stream" or output.name == "stdout"
            ]
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert shown == stored
