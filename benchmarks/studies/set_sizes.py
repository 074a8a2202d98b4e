"""Do label budgets hold? 200 draws of the fitted rows; mean set size on the population.

``python -m benchmarks.studies.set_sizes``
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import binom, norm

from benchmarks.studies.training import markdown
from credibly import InputError
from credibly.decide import AverageSize
from credibly.decide.guarantees import Guarantee

TRIALS, PEER_TRIALS, DELTA = 200, 40, 0.1
SETTINGS = ((50, 2.0), (500, 5.0))
ROWS = (200, 1000, 5000)
RULES: dict[str, Guarantee] = {
    "Algorithm 1": None,
    "expected": "expected",
    f"probability, δ = {DELTA}": ("probability", DELTA),
}


def main() -> None:
    print(markdown(["labels", "K", "rows", "rule", "mean size", "share above K"], _ours()))
    print("\nThe probability version against other bounds, mean size (larger is better)\n")
    print(markdown(["labels", "K", "rows", "credibly", *PEERS], _peers()))


ROW_SD, PAIR_SD = 0.7, 2.0


def _centres(labels: int) -> np.ndarray:
    return -1.5 - np.log(labels / 10) + np.linspace(1, -1, labels)


def draw(rows: int, labels: int, seed: int) -> np.ndarray:
    """Probabilities that vary with the label, the row and their pairing."""
    noise = np.random.default_rng(seed)
    scores = PAIR_SD * noise.normal(size=(rows, labels)) + ROW_SD * noise.normal(size=(rows, 1))
    return (1 / (1 + np.exp(-_centres(labels) - scores))).astype(np.float32)


def size_at(threshold: float, labels: int) -> float:
    """The mean set size over the whole population, exactly."""
    if threshold >= 1:
        return 0.0
    away = (_centres(labels) - math.log(threshold / (1 - threshold))) / math.hypot(ROW_SD, PAIR_SD)
    return float(norm.cdf(away).sum())


def _ours() -> list[list[str]]:
    table = []
    for labels, size in SETTINGS:
        for rows in ROWS:
            sizes = np.array([_trial(labels, size, rows, seed) for seed in range(TRIALS)])
            for name, column in zip(RULES, sizes.T, strict=True):
                error = column.std(ddof=1) / math.sqrt(TRIALS)
                mean = f"{column.mean():.3f} ± {error:.3f}" if column.any() else "too few rows"
                above = f"{(column > size).mean():.3f}"
                table.append([str(labels), f"{size:g}", f"{rows:,}", name, mean, above])
            print(labels, rows, flush=True)
    return table


def _trial(labels: int, size: float, rows: int, seed: int) -> list[float]:
    probabilities = draw(rows, labels, seed)
    sizes = []
    for guarantee in RULES.values():
        try:
            threshold = AverageSize(size, guarantee).fit(probabilities).threshold
        except InputError:
            threshold = 1.0
        sizes.append(size_at(threshold, labels))
    return sizes


# Other upper bounds on a mean, for comparison -------------------------------------------------


def hoeffding_bentkus(sizes: np.ndarray, size: float, labels: int) -> bool:
    rows, mean, bound = len(sizes), sizes.mean() / labels, size / labels
    if mean >= bound:
        return False
    gain = (1 - mean) * math.log((1 - mean) / (1 - bound))
    gain += mean * math.log(mean / bound) if mean else 0.0
    tail = math.e * binom.cdf(math.ceil(rows * mean), rows, bound)
    return min(math.exp(-rows * gain), tail) <= DELTA


def empirical_bernstein(sizes: np.ndarray, size: float, labels: int) -> bool:
    """Maurer & Pontil (2009)."""
    rows, log = len(sizes), math.log(2 / DELTA)
    width = math.sqrt(2 * sizes.var(ddof=1) * log / rows) + 7 * labels * log / (3 * (rows - 1))
    return bool(sizes.mean() + width <= size)


def adaptive_betting(sizes: np.ndarray, size: float, labels: int) -> bool:
    """Waudby-Smith & Ramdas (2024); its capital need not fall with larger sets, so a search by
    halves is not covered by its proof: an optimistic peer."""
    shares, count = sizes / labels, np.arange(1, len(sizes) + 1)
    means = (0.5 + np.cumsum(shares)) / (count + 1)
    variances = (0.25 + np.cumsum((shares - means) ** 2)) / (count + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    stakes = np.minimum(1, np.sqrt(2 * math.log(1 / DELTA) / (len(sizes) * earlier)))
    capital = np.cumsum(np.log1p(stakes * (size / labels - shares)))
    return bool(capital.max() >= math.log(1 / DELTA))


PEERS: dict[str, Callable[[np.ndarray, float, int], bool]] = {
    "Hoeffding–Bentkus": hoeffding_bentkus,
    "empirical Bernstein": empirical_bernstein,
    "adaptive betting": adaptive_betting,
}


def _peers() -> list[list[str]]:
    table = []
    for labels, size in SETTINGS:
        for rows in ROWS:
            trials = PEER_TRIALS if labels * rows <= 250_000 else PEER_TRIALS // 4
            found = np.array([_peer_trial(labels, size, rows, seed) for seed in range(trials)])
            cells = [f"{mean:.3f}" for mean in found.mean(axis=0)]
            table.append([str(labels), f"{size:g}", f"{rows:,}", *cells])
            print(labels, rows, flush=True)
    return table


def _peer_trial(labels: int, size: float, rows: int, seed: int) -> list[float]:
    probabilities = draw(rows, labels, seed)
    result = [_trial(labels, size, rows, seed)[-1]]
    budget = int(size * rows)
    cuts = np.sort(np.partition(probabilities, -budget, axis=None)[-budget:])[::-1]
    for accepts in PEERS.values():
        low, high = 0, len(cuts) - 1
        while high - low > 1:
            middle = (low + high) // 2
            good = accepts((probabilities > cuts[middle]).sum(axis=1), size, labels)
            low, high = (middle, high) if good else (low, middle)
        result.append(size_at(float(cuts[low]), labels) if low else 0.0)
    return result


if __name__ == "__main__":
    main()
