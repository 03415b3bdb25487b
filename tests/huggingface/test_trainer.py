"""A short run of transformers' Trainer."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.later import Later

ours = Later("yuriiformer.huggingface")

pytest.importorskip("accelerate", reason="the Trainer needs accelerate")


@pytest.mark.parametrize(
    ("rule", "checkpointing", "accumulation"),
    [("nesterov-lie-trotter", False, 1), ("hamiltonian", True, 2)],
)
def test_the_loss_goes_down(rule, checkpointing, accumulation, tmp_path):
    from transformers import Trainer, TrainingArguments

    config = yf.ModelConfig(
        rule, n_layer=2, n_head=2, d_model=32, vocab_size=64, valid_vocab=50, context=16
    )
    net = ours.YuriiFormerForCausalLM.of(yf.YuriiFormer(config, seed=0))
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(50, (64,), generator=generator).tolist()
    rows = [(torch.arange(16) * 3 + start) % 50 for start in starts]  # to be learnt
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=20,
        learning_rate=1e-2,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=accumulation,
        gradient_checkpointing=checkpointing,
        logging_steps=1,
        save_strategy="steps",
        save_steps=20,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    trainer = Trainer(model=net, args=arguments, train_dataset=data, eval_dataset=data[:8])
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()
    own = net.model.eval()(torch.stack(rows[:8])[:, :-1], torch.stack(rows[:8])[:, 1:])
    assert after["eval_loss"] == pytest.approx(own.item(), abs=1e-4)
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[0] == pytest.approx(before, abs=0.3)  # a mean a token, however batches are cut
    assert after["eval_loss"] < 0.5 * before
    again = ours.YuriiFormerForCausalLM.from_pretrained(tmp_path / "checkpoint-20")
    state = net.state_dict()
    assert all(torch.equal(state[name], each) for name, each in again.state_dict().items())
