"""YuriiFormer in Hugging Face's transformers: importing this makes the Auto classes know it.

import yuriiformer.huggingface
model = AutoModelForCausalLM.from_pretrained(folder)   # what `yurii export` wrote
"""

from __future__ import annotations

from transformers import AutoConfig, AutoModelForCausalLM

from yuriiformer.huggingface.export import export_model, export_run
from yuriiformer.huggingface.model import YuriiFormerConfig, YuriiFormerForCausalLM
from yuriiformer.model.foreign import import_gpt2, import_nanogpt

__all__ = [
    "YuriiFormerConfig",
    "YuriiFormerForCausalLM",
    "export_model",
    "export_run",
    "import_gpt2",
    "import_nanogpt",
]

AutoConfig.register(YuriiFormerConfig.model_type, YuriiFormerConfig, exist_ok=True)
AutoModelForCausalLM.register(YuriiFormerConfig, YuriiFormerForCausalLM, exist_ok=True)
