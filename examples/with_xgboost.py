"""XGBoost: margins of a boosted model become calibrated probabilities."""

import xgboost
from sklearn.datasets import make_multilabel_classification

import credibly as cr

X, Y = make_multilabel_classification(2000, n_features=20, n_classes=5, random_state=0)
model = xgboost.XGBClassifier(n_estimators=150, max_depth=6, n_jobs=1).fit(X[:1000], Y[:1000])

# Margins are log-odds before any sigmoid, so the loss is binary cross-entropy.
margins = model.predict(X[1000:], output_margin=True)
result = cr.calibrate_scores(margins, Y[1000:], loss="bce")
print(result)
result.predictions.write("predictions.parquet")
