"""Names of losses: the table that the command line reads without importing torch."""

from __future__ import annotations

from credibly import losses, names


def test_the_names_known_without_torch_are_those_of_the_package():
    built = {
        name: type(losses.from_name(name, num_labels=4, num_rows=8, average_size=2)).__name__
        for name in losses.names()
    }
    missing = [
        f'    "{name}": "{kind}",' for name, kind in built.items() if name not in names.LOSSES
    ]
    assert not missing, "add to LOSSES in src/credibly/names.py:\n" + "\n".join(missing)
    assert built == names.LOSSES
