"""Comments, half of them toxic, two thirds obscene."""

import pandas as pd

tone = [("nice", "bad")[number % 2] for number in range(200)]
manner = [("kind", "rude", "rude")[number % 3] for number in range(200)]
comments = pd.DataFrame(
    {
        "id": range(200),
        "comment": [f"a {a} and {b} remark" for a, b in zip(tone, manner, strict=True)],
        "toxic": [int(word == "bad") for word in tone],
        "obscene": [int(word == "rude") for word in manner],
    }
)
comments.to_csv("comments.csv", index=False)
comments[["id", "comment"]].head(20).to_csv("new.csv", index=False)
