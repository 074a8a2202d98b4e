"""Quasibinary Classifier for Images with Zero and Multiple Labels (Liao et al., 2021)."""

from __future__ import annotations

from credibly.papers.protocol import ALL_ROWS, OURS, PLAIN, Preset, says
from credibly.papers.tables import Block, Table

TITLE = "Quasibinary Classifier for Images with Zero and Multiple Labels"

_CIFAR = Preset(
    (
        says(
            '"We use the SGD optimizer with momentum set to 1e−4" (read as weight decay; momentum '
            "0.9 is ours)",
            optimizer="sgd",
            momentum=0.9,
            weight_decay=1e-4,
        ),
        says(
            '"The initial learning rate is set as 0.1 and decreased by a factor of 10 after 50% '
            'and 75% of the epochs"',
            learning_rate=0.1,
            schedule="step",
            milestones=(0.5, 0.75),
            warmup=0.0,
        ),
        says(
            '"We train all the models for 200 epochs with a batch size of 64"',
            epochs=200,
            batch_size=64,
        ),
        says(
            '"we set the momentum of the moving average … as 0.9" (the loss\'s default)',
            loss="quasibinary",
        ),
        says('"we always use a 32×32 input size"', image_size=32),
        PLAIN,
        ALL_ROWS,
    ),
    of_data={"nuswide": {"split": "gong"}},
)
_RESNET = says('"models trained with a Resnet18 [26] backbone"', model="resnet18-32")
_OTHERS = '"Similar results were obtained with VGG16 and DenseNets"'

PRESETS: dict[str, Preset] = {
    "quasibinary-cifar": _CIFAR.but(_RESNET),
    "quasibinary-cifar-vgg16": _CIFAR.but(says(_OTHERS, model="vgg16")),
    "quasibinary-cifar-densenet": _CIFAR.but(
        says(f"{_OTHERS}; the paper does not say which DenseNet", model="densenet40-12")
    ),
    "quasibinary-cifar-ours": _CIFAR.but(_RESNET, OURS),
    "quasibinary-coco": _CIFAR.but(
        says(
            '"fine-tune a VGG16 [35] backbone for 20 epochs"',
            model="timm:vgg16",
            weights="pretrained",
            epochs=20,
        ),
        says("ours: learning rate and resolution", learning_rate=1e-3, image_size=224),
    ),
}

_ONE_LABEL = {
    # The scale of a binary loss matters with SGD: a sum over labels, as for the other two losses.
    "Binary": "bce(reduction=rows)",
    "Quasibinary": "quasibinary",
    "Softmax": "softmax",
}
TABLES: dict[str, Table] = {
    "I": Table(
        "One-vs.-rest image classification, top-1 error",
        ("top-1 error",),
        _ONE_LABEL,
        (
            Block("cifar10", "quasibinary-cifar", "Binary 4.8\nQuasibinary 4.9\nSoftmax 5.2"),
            Block("cifar100", "quasibinary-cifar", "Binary 35.4\nQuasibinary 21.9\nSoftmax 22.2"),
            Block("tinyimagenet", "quasibinary-cifar", "Binary ×\nQuasibinary 42.9\nSoftmax 43.3"),
        ),
        note="× is a run that did not converge. ImageNet is read as imagefolder:PATH, at 224 px.",
    ),
    "II": Table(
        "Images without a label, CIFAR60+40",
        ("IN accuracy", "OUT MMC", "zero-label AUROC"),
        {
            "Binary": "bce(reduction=rows)",
            "Softmax + Uniform": "softmax(zero_label=uniform)",
            "Softmax + MaxConf": "softmax(zero_label=max_confidence)",
            "Quasibinary": "quasibinary",
        },
        (
            Block(
                "cifar60+40",
                "quasibinary-cifar",
                """
                Binary            77.8 14.7 90.1
                Softmax + Uniform 80.7 59.8 80.0
                Softmax + MaxConf 45.2  7.4 76.4
                Quasibinary       80.6  6.9 91.3
                """,
            ),
        ),
    ),
    "III": Table(
        "Several labels per image, the four most confident",
        ("F1-top-4", "ECE-top-4"),
        {
            "Binary": "bce(reduction=rows)",
            "Softmax": "softmax",
            "Softmax w/ temperature": {
                "loss": "softmax(reduction=mean)",
                "calibrate": "softmax-temperature",
                "data": {"calibration": 0.1},
            },
            "Quasibinary": "quasibinary",
        },
        (
            Block(
                "coco",
                "quasibinary-coco",
                """
                Binary                 51.2 26.8
                Softmax                54.7 32.2
                Softmax w/ temperature 54.7 31.4
                Quasibinary            54.7  2.8
                """,
            ),
            Block(
                "nuswide",
                "quasibinary-coco",
                """
                Binary                 40.7 23.6
                Softmax                43.2 25.8
                Softmax w/ temperature 43.2 24.6
                Quasibinary            43.5  3.3
                """,
            ),
        ),
    ),
}
