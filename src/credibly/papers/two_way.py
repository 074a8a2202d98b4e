"""Two-way Multi-Label Loss (Kobayashi, 2023)."""

from __future__ import annotations

from credibly.papers.protocol import ALL_ROWS, PLAIN, Preset, says
from credibly.papers.tables import Block, Table

TITLE = "Two-way Multi-Label Loss"

PENALTIES = tuple(10 ** (5 - step / 4) for step in range(45))
"""Of the supplement: 45 weights evenly spaced on a log scale, strongest first."""

PRESETS: dict[str, Preset] = {
    "twl": Preset(
        (
            says('"using ResNet-50"', model="timm:resnet50", weights="pretrained"),
            says(
                "the authors' public code: SGD with Nesterov momentum, the backbone at a tenth of "
                "the rate",
                loss="twl+published",
                optimizer="sgd",
                momentum=0.9,
                nesterov=True,
                learning_rate=0.01,
                backbone_rate=0.1,
                weight_decay=1e-4,
                schedule="cosine",
                warmup=0.0,
                batch_size=512,
                epochs=40,
            ),
            says(
                "the same code: RandomResizedCrop, flip, ColorJitter(0.4), Lighting(0.1) "
                "at 224 px; tested on the center of images of 256 px",
                image_size=224,
                augment="imagenet",
                color_jitter=0.4,
                lighting=0.1,
                eval_crop=256,
            ),
            PLAIN,
            ALL_ROWS,
        ),
        # Excludes images without a label.
        of_data={"coco": {"drop_empty": True}, "nuswide": {"drop_empty": True}},
    ),
    "asl": Preset(
        (
            says(
                "the public code of Ben-Baruch et al. (2021): γ+ 0, γ− 4, margin 0.05, its weights "
                "detached; tresnet_m from ImageNet weights",
                loss="asl(gamma_neg=4,gamma_pos=0,margin=0.05,detach_weight=true)+published",
                model="timm:tresnet_m",
                weights="pretrained",
            ),
            says(
                "the same: Adam at 1e-4, decay 1e-4, one cycle of 80 epochs that stops after 40, "
                "averaged weights",
                optimizer="adam",
                learning_rate=1e-4,
                weight_decay=1e-4,
                schedule="onecycle",
                schedule_epochs=80,
                warmup=0.2,
                epochs=40,
                ema=0.9997,
                batch_size=128,
            ),
            says(
                "the same: the whole image at 448 px (its table; the script's default is 224), "
                "Cutout 0.5, RandAugment (strength ours)",
                image_size=448,
                augment="none",
                cutout=0.5,
                rand_augment=0.5,
            ),
            PLAIN,
            ALL_ROWS,
        ),
        of_data={"coco": {"drop_empty": True}},
    ),
    "twl-probe": Preset(
        (
            says(
                '"The linear (FC) classifier is trained on the downstream dataset by using LBFSG '
                "with a L2 regularization weight for which we sampled 45 values equally-spaced on "
                'log-scale range between [10⁻⁶, 10⁵]"',
                model="linear",
                l2=PENALTIES,
            ),
            says(
                '"we report the best performance over those regularization parameters": accuracy '
                "(held-out rows choose here, where the paper takes the best on test)",
                select="accuracy",
            ),
            says(
                "the paper does not say which loss; the loss under test trains the backbone",
                loss="softmax",
            ),
        ),
        # Table A uses the published validation rows as training rows.
        of_data={name: {"val": "train"} for name in ("aircraft", "dtd", "flowers")},
    ),
}

TABLES: dict[str, Table] = {
    "B": Table(
        "Ranking losses, MSCOCO, ResNet-50",
        ("mAP@y", "mAP@x"),
        {
            "WARP": "warp",
            "Ours (sample-wise)": "twl(ways=samples)+published",
            "RML": "rml",
            "Ours (two-way)": "twl",
        },
        (
            Block(
                "coco",
                "twl",
                """
                WARP               62.54 84.22
                Ours (sample-wise) 67.18 86.07
                RML                71.37 85.58
                Ours (two-way)     74.11 86.66
                """,
            ),
        ),
        note="The weighting of RML is ours: its exact form was not available.",
    ),
    "C": Table(
        "NUS-WIDE, ResNet-50",
        ("mAP@y", "mAP@x"),
        {
            "Softmax": "softmax",
            "ASL": "asl(detach_weight=true)",
            "Ours": "twl",
        },
        (Block("nuswide", "twl", "Softmax 49.85 82.77\nASL 58.40 83.73\nOurs 59.67 83.60"),),
    ),
}
