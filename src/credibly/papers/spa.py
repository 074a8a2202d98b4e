"""Towards Calibrated Multi-label Deep Neural Networks (Cheng & Vasconcelos, 2024)."""

from __future__ import annotations

from credibly.papers.protocol import ALL_ROWS, OURS, PLAIN, Preset, says
from credibly.papers.tables import Block, Table

TITLE = "Towards Calibrated Multi-label Deep Neural Networks"

_IMAGES = Preset(
    (
        says(
            '"a stochastic gradient descent (SGD) optimizer with momentum of 0.9, weight decay of '
            '1e-4, and batch size of 256"',
            optimizer="sgd",
            momentum=0.9,
            weight_decay=1e-4,
            batch_size=256,
        ),
        says('"The input image resolution is set to 224×224"', image_size=224),
        says(
            '"all DNNs are initialized with weights pretrained on ImageNet"', weights="pretrained"
        ),
        PLAIN,
        ALL_ROWS,
        says(
            "ours: LPR weight 1, learning rate, schedule, epochs",
            loss="spa+lpr",
            learning_rate=0.01,
            schedule="cosine",
            warmup=0.0,
            epochs=40,
        ),
    ),
    losses={"focal": "focal+published", "asl": "asl(detach_weight=true)+published"},
    # Table 2: 82,081 and 40,137 images of COCO, 14,167 training images of VISPR.
    of_data={"coco": {"drop_empty": True}, "vispr": {"val": "train"}},
)
_NETWORKS = '"using the ECA-ResNet50-T … and ViT-B/32 … networks as multi-label DNN backbone"'

PRESETS: dict[str, Preset] = {
    "spa-coco": _IMAGES.but(says(_NETWORKS, model="timm:ecaresnet50t")),
    "spa-coco-vit": _IMAGES.but(says(_NETWORKS, model="timm:vit_base_patch32_224")),
    "spa-coco-ours": _IMAGES.but(says(_NETWORKS, model="timm:ecaresnet50t"), OURS),
    "spa-vqa": Preset(
        (
            PLAIN,
            ALL_ROWS,
            says(
                '"visual question answering on the VQA v2.0 dataset [22] and the LXMERT [71] '
                'network"; no settings are printed',
                model="hf:unc-nlp/lxmert-base-uncased",
                weights="pretrained",
            ),
            says(
                "LXMERT's own script for VQA. It multiplies the mean loss by the number of "
                "answers, so the loss is a sum over labels. Its gradient clipping is meant for "
                "this sum",
                loss="spa(reduction=rows)",
                optimizer="adamw",
                learning_rate=5e-5,
                weight_decay=0.01,
                schedule="linear",
                warmup=0.1,
                clip=5.0,
                batch_size=32,
                max_length=20,
                epochs=4,
            ),
        )
    ),
}

_METHODS = {
    "BCE": "bce",
    # "we attempt to calibrate its outputs by temperature scaling": the paper does not say on which
    # rows. A name with arguments is used as given; a bare name has its meaning in this paper.
    "TWL": {
        "loss": "twl(reduction=mean)",
        "calibrate": "temperature",
        "data": {"calibration": 0.1},
    },
    "Focal": "focal",
    "Focal + φ": "focal(reduction=mean)",
    "ASY": "asl",
    "ASY + φ": "asl(detach_weight=true)",
    "SPA": "spa",
    "SPA + LPR": "spa+lpr",
}
_RESNET, _VIT = "spa-coco", "spa-coco-vit"
TABLES: dict[str, Table] = {
    "3": Table(
        "Accuracy and calibration of different losses",
        ("mAP@y", "mAP@x", "ACE", "MCE"),
        _METHODS,
        (
            Block(
                "coco",
                _RESNET,
                """
                BCE       72.2 82.4  8.2 17.0
                TWL       77.2 87.9 17.2 33.6
                Focal     74.8 85.9 20.1 34.9
                Focal + φ    -    - 11.1 20.3
                ASY       77.5 88.2 30.6 46.0
                ASY + φ   77.0 87.8 15.0 26.0
                SPA       77.8 88.4  5.3 12.0
                SPA + LPR 77.7 88.6  4.2  9.3
            """,
            ),
            Block(
                "coco",
                _VIT,
                """
                BCE       70.1 81.9  6.0 15.5
                TWL       76.2 88.0 14.2 31.3
                Focal     72.0 83.8 23.6 36.2
                Focal + φ    -    -  8.5 17.9
                ASY       76.4 87.7 29.5 48.6
                ASY + φ   76.2 87.3 16.2 26.2
                SPA       76.8 87.9  4.8 10.7
                SPA + LPR 76.6 88.1  2.1  5.3
            """,
            ),
            Block(
                "voc",
                _RESNET,
                """
                BCE       85.1 92.4  6.9 13.8
                TWL       89.1 93.7 10.8 22.0
                Focal     87.4 93.3 19.0 35.8
                Focal + φ    -    -  7.0 16.5
                ASY       89.6 94.6 26.4 47.7
                ASY + φ   89.1 94.3 12.9 24.7
                SPA       89.5 94.1  5.4 14.9
                SPA + LPR 89.9 94.3  4.9 11.0
            """,
            ),
            Block(
                "voc",
                _VIT,
                """
                BCE       86.9 92.7  7.8 16.7
                TWL       90.1 94.5 14.5 28.3
                Focal     88.4 93.6 16.2 31.7
                Focal + φ    -    -  9.3 20.7
                ASY       90.4 94.7 31.7 52.8
                ASY + φ   89.8 94.2 15.5 33.0
                SPA       90.0 93.9  6.1 14.4
                SPA + LPR 90.4 94.8  5.5 12.7
            """,
            ),
            # The version used here has one more block, whose data set is called both WIDER-A and
            # VISPR.
            Block(
                "wider",
                _RESNET,
                """
                BCE       74.9 82.8 11.5 25.2
                TWL       79.9 85.5 14.3 29.0
                Focal     78.5 84.1 20.1 34.2
                Focal + φ    -    -  9.3 21.0
                ASY       80.6 86.0 24.2 35.2
                ASY + φ   79.9 85.4 14.3 27.5
                SPA       80.1 85.8  5.3 11.2
                SPA + LPR 80.3 85.9  3.5  8.0
            """,
            ),
            Block(
                "wider",
                _VIT,
                """
                BCE       76.7 83.2  8.6 13.3
                TWL       81.6 87.6 16.7 32.3
                Focal     80.8 85.2 18.8 31.2
                Focal + φ    -    -  7.4 16.5
                ASY       82.2 87.8 22.8 36.3
                ASY + φ   81.8 87.2 13.3 20.7
                SPA       82.0 87.6  4.3 10.5
                SPA + LPR 82.7 87.9  2.8  6.2
            """,
            ),
        ),
    ),
    # The headers of mAP@x and mAP@y are swapped in print.
    "4": Table(
        "Effect of LPR on other losses",
        ("mAP@y", "mAP@x", "ACE", "MCE"),
        {
            "BCE": "bce",
            "BCE + LPR": "bce+lpr",
            "Focal": "focal",
            "Focal + LPR": "focal+lpr(on=published)",
            "ASY": "asl",
            "ASY + LPR": "asl(detach_weight=true)+lpr(on=published)",
        },
        (
            Block(
                "coco",
                _RESNET,
                """
                BCE         72.2 82.4  8.2 17.0
                BCE + LPR   72.4 82.9  6.5 14.8
                Focal       74.8 85.9 20.1 34.9
                Focal + LPR 75.1 86.3 19.7 36.4
                ASY         77.5 88.2 30.6 46.0
                ASY + LPR   77.2 88.1 29.4 44.7
            """,
            ),
        ),
        note="Focal + LPR and ASY + LPR are read by their links here, by a sigmoid in print.",
    ),
}
