"""Files of other programs, and stand-ins for models of libraries that the tests do not have."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

rng = np.random.default_rng(0)
names = ["cat", "dog", "cow"]
x = rng.normal(size=(120, 4))
y = (x[:, :3] + 0.5 * rng.normal(size=(120, 3)) > 0.5).astype(int)
logits = 2 * x[:, :3] - 1
given = 1 / (1 + np.exp(-logits))
ids = [f"{row:04d}" for row in range(120)]


def table(values, rows=ids):
    return pd.DataFrame(values, columns=names).assign(id=rows)[["id", *names]]


np.save("logits.npy", logits)
table(given).to_csv("scores.csv", index=False)
table(given).rename(columns={"id": "image_id"}).to_csv("submission.csv", index=False)
lists = [" ".join(n for n, there in zip(names, row, strict=True) if there) for row in y]
pd.DataFrame({"image_id": [f"{i}.jpg" for i in ids], "labels": lists}).to_csv(
    "train.csv", index=False
)
np.savez("val.npz", scores=logits, labels=np.array(names), ids=np.array(ids))
np.savez("test.npz", scores=logits[:20], labels=np.array(names))
table(y).to_csv("y.csv", index=False)
table(given).to_csv("probabilities.csv", index=False)
outputs = {f"pred_{name}": logits[:, place] for place, name in enumerate(names)}
outputs |= {f"true_{name}": y[:, place] for place, name in enumerate(names)}
pd.DataFrame({"id": ids, **outputs}).to_csv("outputs.csv", index=False)
forest = RandomForestClassifier(5, random_state=0).fit(x, y)
booster = SimpleNamespace(predict=lambda _matrix, output_margin: logits)
matrix, rows, frame = x, x, table(given)
trainer = SimpleNamespace(
    predict=lambda _rows: SimpleNamespace(predictions=logits, label_ids=y.astype(float))
)
val_scores, val_targets = logits, y
