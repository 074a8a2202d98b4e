"""A network and a loss of one's own, and a finished run."""

import torch

import credibly as cr

data = cr.data.synthetic(200, seed=0)
settings = cr.train.recipe(epochs=1)
my_module = torch.nn.Linear(data.features.shape[1], data.num_labels)
my_loss = cr.losses.SPA()
cr.train.fit(data, cr.train.recipe(model="linear", epochs=1), folder="runs/x")
