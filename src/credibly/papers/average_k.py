"""A Two-Head Loss Function for Deep Average-K Classification (Garcin et al., 2023)."""

from __future__ import annotations

from credibly.papers.protocol import PLAIN, Preset, says
from credibly.papers.tables import Block, Table

TITLE = "A Two-Head Loss Function for Deep Average-K Classification"

_COMMON = Preset(
    (
        says('"SGD and a Nesterov momentum of 0.9"', optimizer="sgd", momentum=0.9, nesterov=True),
        says(
            '"Early stopping is performed on best validation average-K accuracy"',
            select="average-k",
        ),
        says(
            'Algorithm 1, "apply softmax" to the head that predicts; also for an, epr, role, topk',
            loss="avgk+published",
        ),
        PLAIN,
    ),
    # ROLE uses EPR as printed in Eq. 8, a sum over labels.
    losses={
        "avgk": "avgk+published",
        "an": "an+published",
        "epr": "epr+published",
        "role": "role(reduction=rows)+published",
    },
)
_CIFAR100 = _COMMON.but(
    says(
        '"a balanced training set of 45 000 images and a balanced validation set of 5 000 images"',
        data={"calibration": 0.1},
    ),
    says('"We train a DenseNet40-40 [15] for 300 epochs"', model="densenet40-40", epochs=300),
    says(
        '"The batch size is set to 64 and the weight decay to 0.0001"',
        batch_size=64,
        weight_decay=1e-4,
    ),
    says(
        '"The learning rate is initially set to 0.1 and divided by ten at epoch 150 and 225"',
        learning_rate=0.1,
        schedule="step",
        milestones=(0.5, 0.75),
        warmup=0.0,
    ),
    says('"We report test average-5 accuracy"', average_size=5.0),
)

PRESETS: dict[str, Preset] = {
    "avgk-cifar100": _CIFAR100,
    "avgk-cifar100-bc": _CIFAR100.but(
        says(
            "DenseNet40-40 as the authors' earlier code builds it (bottleneck and compression)",
            model="densenet-bc40-40",
        )
    ),
    "avgk-plantnet": _COMMON.but(
        says(
            '"We fine-tune a ResNet-18 [13] pre-trained on ImageNet [25] for 30 epochs"',
            model="timm:resnet18",
            weights="pretrained",
            epochs=30,
        ),
        says(
            '"with a batch size of 32 and an initial learning rate of 0.002, divided by ten at '
            'epoch 25. The weight decay is fixed at 0.0001"',
            batch_size=32,
            learning_rate=2e-3,
            schedule="step",
            milestones=(25 / 30,),
            warmup=0.0,
            weight_decay=1e-4,
        ),
        says("K in 2, 3, 5 and 10; 5 here", average_size=5.0),
        says("ours: resolution", image_size=224),
    ),
}

_METHODS = {
    "CE": "softmax",
    "TOP-K": "topk",
    "AVG-K": "avgk",
    "AN": "an",
    "EPR": "epr",
}
_TABLE_2 = {
    2: "CE 89.63\nTOP-K 90.48\nAVG-K 90.34\nAN 85.41\nEPR 86.30",
    3: "CE 92.64\nTOP-K 93.60\nAVG-K 93.81\nAN 90.15\nEPR 90.49",
    5: "CE 95.11\nTOP-K 95.75\nAVG-K 96.42\nAN 93.88\nEPR 93.63",
    10: "CE 97.11\nTOP-K 97.26\nAVG-K 98.23\nAN 96.86\nEPR 95.99",
}
TABLES: dict[str, Table] = {
    "1": Table(
        "CIFAR-100, test average-5 accuracy",
        ("set coverage",),
        {**_METHODS, "ROLE": "role"},
        (
            Block(
                "cifar100",
                "avgk-cifar100",
                "CE 96.83\nAVG-K 97.35\nROLE 96.12\nAN 96.71\nEPR 95.88\nTOP-K 96.32",
            ),
        ),
    ),
    "2": Table(
        "Pl@ntNet-300K, test average-K accuracy",
        ("set coverage",),
        _METHODS,
        tuple(
            Block("plantnet", "avgk-plantnet", printed, {"average_size": float(k)})
            for k, printed in _TABLE_2.items()
        ),
    ),
}
