"""timm: any of its networks, with a loss that knows its link in place of timm's own."""

import timm
import torch
from timm.optim import create_optimizer_v2

import credibly as cr

# Images with zero to four squares, each at a corner of its own; noise hides some of them.
torch.manual_seed(0)
targets = (torch.rand(600, 4) < 0.3).float()
images = 0.7 * torch.randn(600, 3, 32, 32)
for label, (top, left) in enumerate([(2, 2), (2, 20), (20, 2), (20, 20)]):
    images[:, :, top : top + 8, left : left + 8] += 0.8 * targets[:, label, None, None, None]

loss = cr.losses.SPA()
model = timm.create_model("resnet10t", pretrained=False, num_classes=loss.num_outputs(4))
optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3)
for _ in range(4):
    model.train()
    for rows in torch.randperm(400).split(40):
        optimizer.zero_grad()
        loss(model(images[rows]), targets[rows]).backward()
        optimizer.step()

model.eval()
with torch.no_grad():
    scores = model(images[400:])
result = cr.calibrate_scores(scores, targets[400:], loss="spa")
print(result)
result.predictions.write("predictions.parquet")
