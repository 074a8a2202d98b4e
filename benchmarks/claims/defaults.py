"""The search for better defaults, on training rows alone, and its confirmation on test rows."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.plan import Method
from benchmarks.claims.tables import Results, Table, spread

REAL = ("voc2012", "scene", "yeast", "emotions", "medical", "bibtex")
SEEDS = dict.fromkeys(REAL, (1, 2, 3)) | {"voc2012": (1, 2), "bibtex": (1, 2)}
CANDIDATES: dict[str, dict[str, Any]] = {
    "bce": {"loss": "bce"},
    "bce, batch 32": {"loss": "bce", "batch_size": 32},
    "bce+lpr": {"loss": "bce+lpr(weight=1)"},
    "spa": {"loss": "spa"},
    "spa+lpr": {"loss": "spa+lpr(weight=1)"},
    "asl, detached": {"loss": "asl(detach_weight=true)"},
    "twl": {"loss": "twl"},
}
"""What each changes in the defaults of ``credibly train``; calibrators are compared on each run."""


def methods() -> list[Method]:
    """Every candidate where a quarter of the training rows stands in for the test rows."""
    return [
        Method(name, f"{data}@search", f"{data}@search", settings, seeds=SEEDS[data])
        for data in REAL
        for name, settings in CANDIDATES.items()
    ]


def tables(results: Results, final: Results) -> list[Table]:
    """Candidates by validation NLL and ACE, by calibrator."""
    return [_candidates(results)]


def _candidates(results: Results) -> Table:
    rows = []
    for name in CANDIDATES:
        for map_ in ("affine", "beta", "per-label"):
            reading = f"sigmoid + {map_}" if name == "twl" else f"link + {map_}"
            cells = [
                spread(
                    results.values(f"{data}@search", name, "readings", reading, "NLL", scale=1000)
                )
                for data in REAL
            ]
            rows.append([name, map_, *cells])
    return Table("defaults-nll", "NLL × 1000 on validation rows", ["candidate", "map", *REAL], rows)
