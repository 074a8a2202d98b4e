"""A plain PyTorch loop with mixed precision and gradient accumulation, then calibration."""

import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

import credibly as cr

torch.manual_seed(0)
features = torch.randn(3000, 20)
targets = torch.bernoulli(torch.sigmoid(features @ torch.randn(20, 8) / 2 - 2))
train, held_out = random_split(TensorDataset(features, targets), [2000, 1000])

device = "cuda" if torch.cuda.is_available() else "cpu"
mixed = device == "cuda"  # half precision on the GPU; the loss computes in float32 by itself
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
model.to(device)
loss = cr.losses.from_name("spa")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler(device, enabled=mixed)
accumulate = 4

for _ in range(10):
    for step, (x, y) in enumerate(DataLoader(train, batch_size=25, shuffle=True), start=1):
        with torch.autocast(device, dtype=torch.float16, enabled=mixed):
            scores = model(x.to(device))
        value = loss(scores, y.to(device)) / accumulate  # the mean over a row of equal batches
        scaler.scale(value).backward()
        if step % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

x, y = (torch.stack(column) for column in zip(*held_out, strict=True))
with torch.no_grad():
    scores = model(x.to(device)).float().cpu()
result = cr.calibrate_scores(scores, y, loss="spa")
print(result)
result.predictions.write("predictions.parquet")
