"""Towards Calibrated Multi-label Deep Neural Networks (Cheng & Vasconcelos, 2024)."""

from __future__ import annotations

from typing import Any

from credibly.papers.protocol import AS_PRINTED, OURS, SGD, Preset

# Section 5.1. Learning rate, schedule and epochs are ours.
_SPA: dict[str, Any] = {
    **SGD,
    **AS_PRINTED,
    "loss": "spa+lpr",
    "weights": "pretrained",
    "batch_size": 256,
    "image_size": 224,
    "learning_rate": 0.01,
    "schedule": "cosine",
    "epochs": 40,
}

PRESETS: dict[str, Preset] = {
    "spa-coco": Preset({**_SPA, "model": "timm:ecaresnet50t"}),
    "spa-coco-vit": Preset({**_SPA, "model": "timm:vit_base_patch32_224"}),
    "spa-coco-ours": Preset({**_SPA, **OURS, "model": "timm:ecaresnet50t"}),
    # The paper trains LXMERT on VQA v2 and prints no settings. These are those of LXMERT's own
    # script for VQA: Adam at 5e-5, 32 rows, 4 epochs, the rate rising over the first tenth and
    # falling linearly, 20 tokens per question. Only the loss is the paper's; as in that script it
    # is summed over the answers, for which the bound on the gradient is meant.
    "spa-vqa": Preset(
        {
            **AS_PRINTED,
            "loss": "spa(reduction=rows)",
            "model": "hf:unc-nlp/lxmert-base-uncased",
            "weights": "pretrained",
            "optimizer": "adamw",
            "learning_rate": 5e-5,
            "weight_decay": 0.01,
            "schedule": "linear",
            "warmup": 0.1,
            "clip": 5.0,
            "batch_size": 32,
            "max_length": 20,
            "epochs": 4,
        }
    ),
}
