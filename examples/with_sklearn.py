"""scikit-learn: a random forest on a data frame, calibrated, scored and cut into label sets."""

import pandas as pd
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

import credibly as cr

X, Y = make_multilabel_classification(1500, n_features=20, n_classes=5, random_state=0)
Y = pd.DataFrame(Y, columns=["politics", "sport", "science", "music", "food"])
forest = RandomForestClassifier(60, random_state=0, class_weight="balanced")

calibrated = cr.CalibratedMultiLabel(forest).fit(X[:1000], Y[:1000])
for name, model in {"forest": forest.fit(X[:1000], Y[:1000]), "calibrated": calibrated}.items():
    print(f"{name:11s} NLL {-cr.metrics.scorer('nll')(model, X[1000:], Y[1000:]):.4f}")
folds = cr.data.StratifiedFolds(3)
scores = cross_val_score(forest, X[:600], Y[:600], cv=folds, scoring=cr.metrics.scorer("map"))
print("mAP of three folds:", scores.round(3))
print("labels per row:", calibrated.predict_sets(X[1000:], average_size=2).sum(axis=1).mean())
calibrated.to_predictions(X[1000:], Y[1000:]).write("predictions.parquet")
