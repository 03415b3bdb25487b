"""The plan of a run as text: one rule in sections, or many as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from yuriiformer.display.columns import aligned, duration
from yuriiformer.files import in_bytes

if TYPE_CHECKING:  # a plan as text needs no torch
    from yuriiformer.costs.flops import Work
    from yuriiformer.planning.devices import Device
    from yuriiformer.planning.hours import Against
    from yuriiformer.planning.plan import Disk, Plan

Rows = Sequence[tuple[str, str]]
NAME = 24  # columns of a line's name


def plan_page(plan: Plan) -> str:
    """Everything about one rule."""
    rule = plan.config.model.rule
    sections = [
        (f"{rule.label} ({rule.name})", _head(plan)),
        ("Parameters", _parameters(plan)),
        ("Work, FLOPs per token", _work(plan)),
        (f"Memory of a process, micro-batch {plan.micro_batch}", _memory(plan)),
        ("Time", _time(plan)),
        (f"Beside {plan.against.name}", _against(plan.against)),
        ("Disk", _disk(plan.disk)),
    ]
    return "\n\n".join(
        "\n".join([title, *(f"  {name:<{NAME}}{text}" for name, text in rows)])
        for title, rows in sections
    )


def _head(plan: Plan) -> Rows:
    model, recipe, device = plan.config.model, plan.config.recipe, plan.device
    count = f"{plan.gpus} x " if plan.gpus > 1 else ""
    if plan.shards > 1:
        copies = f", {plan.gpus // plan.shards} copies" if plan.shards < plan.gpus else ""
        count = f"{plan.gpus} (sharing the model by {plan.shards}{copies}) x "
    epochs = "" if plan.epochs is None else f", {plan.epochs:.2f} epochs"
    again = ", recomputing the blocks" if plan.config.machine.recompute else ""
    matrices = f"AdamW for everything, matrices {recipe.matrix_peak:g}"
    if recipe.uses_muon:
        matrices = f"Muon {recipe.muon_lr:g}"
    return [
        (
            "model",
            f"{model.n_layer} layers, {model.n_head} heads, d = {model.d_model}, context "
            f"{model.context}, vocabulary {model.vocab_size:,}, oracles {model.oracles}",
        ),
        (
            "run",
            f"{recipe.steps:,} steps ({recipe.warmup_steps:,} warmup) of {recipe.sequences} "
            f"sequences: {plan.tokens:,} tokens{epochs}",
        ),
        (
            "rates",
            f"{matrices}, AdamW {recipe.adamw_lr:g}, coefficients "
            f"{recipe.adamw_lr * recipe.coefficient_lr:g}",
        ),
        (
            "device",
            f"{count}{device.label}: {_giga(device.memory)}B, {_giga(device.bandwidth)}B/s, "
            f"{_giga(device.rate(plan.dtype))}FLOP/s in {plan.precision}{again}",
        ),
    ]


def _parameters(plan: Plan) -> Rows:
    parts = plan.parameters
    sizes = {
        "token table (tied)": parts.token_table,
        "tables of other streams": parts.start_tables,
        "positions": parts.positions,
        "attention": parts.attention,
        "MLP": parts.mlp,
        "norms": parts.norms,
        "coefficients": parts.coefficients,
    }
    frozen = f", {parts.frozen:,} of them frozen" if parts.frozen else ""
    return [
        *((name, f"{size:>13,}") for name, size in sizes.items() if size),
        ("all", f"{parts.all:>13,}{frozen}"),
        ("as the paper counts", f"{parts.paper:>13,}"),
        ("beyond gradient descent", f"{plan.extra_parameters:>13,}"),
    ]


def _work(plan: Plan) -> Rows:
    work = plan.work
    parts: dict[str, Work] = {
        "attention, projections": work.projections,
        "attention, scores": work.scores,
        "MLP": work.mlp,
        "output projection": work.output,
        "all": work.total,
    }
    rows = [
        (name, f"forward {_count(part.forward):>8}   backward {_count(part.backward):>8}")
        for name, part in parts.items()
    ]
    if work.recomputed:
        rows.append(("recomputed", f"{'':>17}backward {_count(work.recomputed):>8}"))
    return [
        *rows,
        ("elementwise", f"forward {_count(work.elementwise):>8}   not in the sum"),
        ("Muon", f"{plan.muon_flops:.2e} per step"),
        ("the run", f"{plan.training_flops:.2e}, and {plan.validation_flops:.2e} to validate"),
    ]


def _memory(plan: Plan) -> Rows:
    memory, device = plan.memory, plan.device
    later = "   not yet there at the peak" if memory.gradients < memory.update.gradients else ""
    parts = [
        ("weights", memory.update.weights, ""),
        ("gradients", memory.update.gradients, later),
        ("optimiser", memory.update.optimizer, ""),
        ("temporary buffers", memory.temporary, ""),
    ]
    if memory.in_passes:  # in the update nothing is kept for a backward pass
        parts.insert(3, ("kept for backward", memory.passes.kept, ""))
    where = "in the passes" if memory.in_passes else "in the update"
    return [
        *((name, f"{in_bytes(size):>12}{note}") for name, size, note in parts),
        ("peak", f"{in_bytes(memory.peak):>12}   {where}"),
        (
            "room",
            f"{in_bytes(device.usable)} of {in_bytes(device.memory)} "
            f"({100 * device.SHARE:.0f} % and {in_bytes(device.FIXED)} set aside)",
        ),
        ("fits", _fits(plan)),
    ]


def _fits(plan: Plan) -> str:
    most, again = plan.fit.largest_micro_batch, plan.fit.largest_with_recompute
    if plan.fit.fits:
        return f"yes; the largest micro-batch that does is {most}"
    text = f"no; the largest micro-batch that does is {most}" if most else "no, not even 1 sequence"
    if plan.fit.fewest is not None:
        text = f"{text}; with --parallel fsdp on {plan.fit.fewest} devices or more it does"
    if again is None:
        return text
    if again >= plan.micro_batch:
        return f"{text}; with --recompute it fits"
    return f"{text}; with --recompute {again or 'none'}"


def _time(plan: Plan) -> Rows:
    time = plan.time
    how = "measured here" if time.measured else "assumed: --mfu"
    rows = [
        (
            "hours",
            f"{time.seconds / 3600:.3g} ({duration(time.seconds)}), of which "
            f"{duration(time.validation_seconds)} to validate",
        ),
        ("share of the peak rate", f"{time.mfu:.3g} ({how})"),
        ("tokens per second", f"{time.tokens_a_second:,.0f}"),
    ]
    more = time.more_seconds
    if more and (more.fused or more.as_it_is):
        text = f"{_hours(more.fused)} h fused, {_hours(more.as_it_is)} h as it is"
        rows.append(("beside the hours", f"{text}: the rule's own bytes, over the bandwidth"))
    if time.uneven:
        rows.append(("note", "the sequences do not divide: the largest share sets the pace"))
    if time.reduced_a_step:
        sizes = in_bytes(time.reduced_a_step), in_bytes(time.gathered_a_step)
        text = f"{sizes[0]} of gradients, {sizes[1]} by Muon, per step and GPU"
        if time.weights_a_step:
            text = f"{in_bytes(time.weights_a_step)} of weights, {text}"
        rows.append(("exchanged", f"{text}: not in the hours"))
    return rows


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:+.2g}"


def _against(found: Against) -> Rows:
    rule, base = found.rule, found.baseline

    def moved(key: str) -> str:
        pair = [in_bytes(each.products_bytes + getattr(each, key)) for each in (rule, base)]
        return f"{pair[0]} for {pair[1]}"

    def took(key: str) -> str:
        return f"{1e3 * getattr(rule, key):.3g} ms for {1e3 * getattr(base, key):.3g} ms"

    bytes_, seconds = "per micro-batch, in the blocks", "(an estimate: rate and bandwidth)"
    lines: Iterable[tuple[str, float, str]] = (
        ("work", found.extra_flops, ""),
        ("bytes moved, as it is", found.extra_bytes_eager, f"{moved('other_bytes')} {bytes_}"),
        ("bytes moved, fused", found.extra_bytes_fused, moved("fused_bytes")),
        ("time, as it is", found.extra_seconds_eager, f"{took('eager_seconds')} {seconds}"),
        ("time, fused", found.extra_seconds_fused, took("fused_seconds")),
    )
    return [(name, f"{_percent(share)}   {text}".rstrip()) for name, share, text in lines]


def _disk(disk: Disk) -> Rows:
    data = "not known: say --tokens N or --data FOLDER"
    if disk.data is not None:
        data = f"{in_bytes(disk.data)} ({disk.tokens:,} tokens)"
    whole, model = in_bytes(disk.checkpoint), in_bytes(disk.model)
    return [
        ("a checkpoint", f"{whole} to resume from, {model} the model alone"),
        ("a run's folder", f"{in_bytes(disk.kept)}, and {in_bytes(disk.needed)} while it saves"),
        ("data", data),
    ]


HEAD = "rule|parameters|beyond GD|FLOPs/token|kept|peak|largest|hours|more|FLOPs|bytes|fused"


def plan_table(plans: Sequence[Plan]) -> str:
    """A row per rule."""
    first = plans[0]
    recipe, how = first.config.recipe, "measured" if first.time.measured else "assumed"
    notes = [
        f"{recipe.steps:,} steps of {recipe.sequences} sequences on {first.gpus} x "
        f"{first.device.label}, {first.precision}, {first.time.mfu:.2g} of its peak ({how})",
        f"kept for backward and peak: at micro-batch {first.micro_batch}; largest: the largest "
        "that fits; FLOPs/token: forward",
        f"FLOPs, bytes (as it is), fused: of a micro-batch in the blocks, beyond "
        f"{first.against.name}; more: hours that the bytes of the fused rule add",
    ]
    rows = [tuple(HEAD.split("|")), *(_row(plan) for plan in plans)]
    return "\n".join([*aligned(rows), "", *notes])


def _row(plan: Plan) -> tuple[str, ...]:
    memory, against, more = plan.memory, plan.against, plan.time.more_seconds
    return (
        plan.config.model.rule.name,
        f"{plan.parameters.all:,}",
        f"{plan.extra_parameters:,}",
        _count(plan.work.total.forward),
        in_bytes(memory.passes.kept),
        in_bytes(memory.peak) + ("" if plan.fit.fits else "!"),
        str(plan.fit.largest_micro_batch or "none"),
        f"{plan.time.seconds / 3600:.3g}",
        _hours(more.fused) if more else "",
        _percent(against.extra_flops),
        _percent(against.extra_bytes_eager),
        _percent(against.extra_bytes_fused),
    )


def device_table(devices: Iterable[Device]) -> str:
    """What is known of devices."""
    rows = [("name", "", "memory", "bandwidth", "bfloat16", "float32")]
    for each in devices:
        low = f"{_giga(each.bfloat16)}FLOP/s" if each.bfloat16 else "none"
        sizes = f"{_giga(each.memory)}B", f"{_giga(each.bandwidth)}B/s"
        rows.append((each.name, each.label, *sizes, low, f"{_giga(each.float32)}FLOP/s"))
    note = "From the makers' data sheets, dense rates; none is measured here. cpu: this machine."
    return "\n".join([*aligned(rows, left=2), "", note])


def _percent(share: float) -> str:
    return f"{100 * share + 0.0:+.1f} %" if abs(share) >= 5e-4 else "+0.0 %"


def _count(number: float) -> str:
    return _giga(number).replace(" ", "")


def _giga(number: float) -> str:
    """Three digits and a prefix: ``4.8 T``."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            value = number / size
            return f"{value:.0f} {prefix}" if value >= 100 else f"{value:.3g} {prefix}"
    return f"{number:.0f} "
