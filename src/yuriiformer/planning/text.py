"""The plan of a run as text: one rule in sections, or many as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yuriiformer.display.columns import aligned
from yuriiformer.files import in_bytes
from yuriiformer.training.display import duration

Data = Mapping[str, Any]
Rows = Sequence[tuple[str, str]]
NAME = 24  # columns of a line's name


def plan_page(plan: Data) -> str:
    """Everything about one rule."""
    sections = [
        (_title(plan), _head(plan)),
        ("Parameters", _parameters(plan["parameters"])),
        ("Work, FLOPs per token", _work(plan)),
        (f"Memory of a process, micro-batch {plan['memory']['micro_batch']}", _memory(plan)),
        ("Time", _time(plan)),
        (f"Beside {plan['against']['name']}", _against(plan["against"])),
        ("Disk", _disk(plan["disk"])),
    ]
    return "\n\n".join(_section(title, rows) for title, rows in sections)


def _section(title: str, rows: Rows) -> str:
    return "\n".join([title, *(f"  {name:<{NAME}}{text}" for name, text in rows)])


def _title(plan: Data) -> str:
    return f"{plan['label']} ({plan['rule']})"


def _head(plan: Data) -> Rows:
    model, run, device = plan["model"], plan["run"], plan["device"]
    count = f"{run['gpus']} x " if run["gpus"] > 1 else ""
    epochs = "" if run["epochs"] is None else f", {run['epochs']:.2f} epochs"
    again = ", recomputing the blocks" if run["recompute"] else ""
    rate = device[run["precision"]]
    return [
        ("model", f"{model['n_layer']} layers, {model['n_head']} heads, d = {model['d_model']}, "
                  f"context {model['context']}, vocabulary {model['vocab_size']:,}, oracles "
                  f"{model['oracles']}"),
        ("run", f"{run['steps']:,} steps of {run['sequences']} sequences: {run['tokens']:,} "
                f"tokens{epochs}"),
        ("device", f"{count}{device['label']}: {_giga(device['memory'])}B, "
                   f"{_giga(device['bandwidth'])}B/s, {_giga(rate)}FLOP/s in {run['precision']}"
                   f"{again}"),
    ]  # fmt: skip


def _parameters(parts: Data) -> Rows:
    names = {
        "token_table": "token table (tied)",
        "start_tables": "tables of other streams",
        "positions": "positions",
        "attention": "attention",
        "mlp": "MLP",
        "norms": "norms",
        "coefficients": "coefficients",
    }
    rows = [(text, f"{parts[key]:>13,}") for key, text in names.items() if parts[key]]
    frozen = f", {parts['frozen']:,} of them frozen" if parts["frozen"] else ""
    return [
        *rows,
        ("all", f"{parts['all']:>13,}{frozen}"),
        ("as the paper counts", f"{parts['paper']:>13,}"),
        ("beyond gradient descent", f"{parts['extra']:>13,}"),
    ]


def _work(plan: Data) -> Rows:
    flops = plan["flops"]
    names = {
        "projections": "attention, projections",
        "scores": "attention, scores",
        "mlp": "MLP",
        "output": "output projection",
        "total": "all",
    }
    rows = [
        (text, f"forward {_count(flops[key]['forward']):>8}   "
               f"backward {_count(flops[key]['backward']):>8}")
        for key, text in names.items()
    ]  # fmt: skip
    if flops["recomputed"]:
        rows.append(("recomputed", f"{'':>17}backward {_count(flops['recomputed']):>8}"))
    return [
        *rows,
        ("elementwise, beside it", f"forward {_count(flops['elementwise']):>8}"),
        ("Muon", f"{flops['optimizer_a_step']:.2e} a step"),
        ("the run", f"{flops['training']:.2e}, and {flops['validation']:.2e} to validate"),
    ]


def _memory(plan: Data) -> Rows:
    memory, device = plan["memory"], plan["device"]
    names = {
        "weights": "weights",
        "gradients": "gradients",
        "optimizer": "optimiser",
        "kept": "kept for backward",
        "temporary": "passing",
    }
    where = "in the passes" if memory["in_passes"] else "in the update"
    if not memory["in_passes"]:  # then nothing is kept for a backward pass
        names.pop("kept")
    parts = [(text, f"{in_bytes(memory[key]):>12}") for key, text in names.items()]
    if memory["gradients"] and not memory["gradients_at_peak"]:
        parts[1] = (parts[1][0], f"{parts[1][1]}   not yet there at the peak")
    share, fixed = device["reserve"]["share"], in_bytes(device["reserve"]["fixed"])
    room = f"{in_bytes(device['usable'])} of {in_bytes(device['memory'])}"
    room += f" ({100 * share:.0f} % and {fixed} set aside)"
    return [
        *parts,
        ("peak", f"{in_bytes(memory['peak']):>12}   {where}"),
        ("room", room),
        ("fits", _fits(memory)),
    ]


def _fits(memory: Data) -> str:
    most, micro = memory["largest_micro_batch"], memory["micro_batch"]
    if memory["fits"]:
        return f"yes; the largest micro-batch that does is {most}"
    text = f"no; the largest micro-batch that does is {most}" if most else "no, not even 1 sequence"
    again = memory["largest_with_recompute"]
    if again is None:
        return text
    if again >= micro:
        return f"{text}; with --recompute it fits"
    return f"{text}; with --recompute {again or 'none'}"


def _time(plan: Data) -> Rows:
    time = plan["time"]
    how = "measured here" if time["measured"] else "assumed: --mfu"
    rows = [
        ("hours", f"{time['seconds'] / 3600:.3g} ({duration(time['seconds'])}), of which "
                  f"{duration(time['validation_seconds'])} to validate"),
        ("share of the peak rate", f"{time['mfu']:.3g} ({how})"),
        ("tokens per second", f"{time['tokens_a_second']:,.0f}"),
    ]  # fmt: skip
    more = time["more_seconds"]
    if more and any(more.values()):
        rows.append(("beside the hours", f"{_hours(more['fused'])} h fused, "
                     f"{_hours(more['as_it_is'])} h as it is: the rule's own bytes, over the "
                     "bandwidth"))  # fmt: skip
    if time["uneven"]:
        rows.append(("note", "the sequences do not divide: who has one more sets the pace"))
    if time["reduced_a_step"]:
        rows.append(("exchanged", f"{in_bytes(time['reduced_a_step'])} of gradients, "
                     f"{in_bytes(time['gathered_a_step'])} by Muon, a step and GPU: not in the "
                     "hours"))  # fmt: skip
    return rows


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:+.2g}"


def _against(found: Data) -> Rows:
    rule, base = found["rule"], found["baseline"]

    def moved(key: str) -> str:
        pair = [in_bytes(each["products_bytes"] + each[key]) for each in (rule, base)]
        return f"{pair[0]} for {pair[1]}"

    def took(key: str) -> str:
        return f"{1e3 * rule[key]:.3g} ms for {1e3 * base[key]:.3g} ms"

    return [
        ("work", _percent(found["extra_flops"])),
        ("bytes moved, as it is", f"{_percent(found['extra_bytes_eager'])}   "
                                  f"{moved('other_bytes')} a micro-batch, in the blocks"),
        ("bytes moved, fused", f"{_percent(found['extra_bytes_fused'])}   {moved('fused_bytes')}"),
        ("time, as it is", f"{_percent(found['extra_seconds_eager'])}   "
                                   f"{took('eager_seconds')} (an estimate: rate and bandwidth)"),
        ("time, fused", f"{_percent(found['extra_seconds_fused'])}   "
                                f"{took('fused_seconds')}"),
    ]  # fmt: skip


def _disk(disk: Data) -> Rows:
    rows = [
        ("a checkpoint", f"{in_bytes(disk['checkpoint'])} to resume from, "
                         f"{in_bytes(disk['model'])} the model alone"),
        ("a run's folder", f"{in_bytes(disk['kept'])}, and {in_bytes(disk['needed'])} while it "
                           "saves"),
    ]  # fmt: skip
    if disk["data"] is not None:
        rows.append(("data", f"{in_bytes(disk['data'])} ({disk['tokens']:,} tokens)"))
    else:
        rows.append(("data", "not known: say --tokens N or --data FOLDER"))
    return rows


def plan_table(plans: Sequence[Data]) -> str:
    """A row per rule."""
    head = ("rule", "parameters", "beyond GD", "FLOPs/token", "kept", "peak", "largest", "hours",
            "more", "FLOPs", "bytes", "fused")  # fmt: skip
    rows = [head, *(_row(plan) for plan in plans)]
    first = plans[0]
    run, memory, time = first["run"], first["memory"], first["time"]
    how = "measured" if time["measured"] else "assumed"
    notes = [
        f"{run['steps']:,} steps of {run['sequences']} sequences on {run['gpus']} x "
        f"{first['device']['label']}, {run['precision']}, {time['mfu']:.2g} of its peak ({how})",
        f"kept for backward and peak: at micro-batch {memory['micro_batch']}; largest: the largest "
        "that fits; FLOPs/token: forward",
        f"FLOPs, bytes (as it is), fused: of a micro-batch in the blocks, beyond "
        f"{first['against']['name']}; more: hours that the bytes of the fused rule add",
    ]
    return "\n".join([*aligned(rows), "", *notes])


def _row(plan: Data) -> tuple[str, ...]:
    memory, against, more = plan["memory"], plan["against"], plan["time"]["more_seconds"]
    return (
        plan["rule"],
        f"{plan['parameters']['all']:,}",
        f"{plan['parameters']['extra']:,}",
        _count(plan["flops"]["total"]["forward"]),
        in_bytes(memory["kept"]),
        in_bytes(memory["peak"]) + ("" if memory["fits"] else "!"),
        str(memory["largest_micro_batch"] or "none"),
        f"{plan['time']['seconds'] / 3600:.3g}",
        _hours(more["fused"]) if more else "",
        _percent(against["extra_flops"]),
        _percent(against["extra_bytes_eager"]),
        _percent(against["extra_bytes_fused"]),
    )


def device_table(devices: Sequence[Data]) -> str:
    """What is known of devices."""
    rows = [("name", "", "memory", "bandwidth", "bfloat16", "float32")]
    for each in devices:
        sizes = f"{_giga(each['memory'])}B", f"{_giga(each['bandwidth'])}B/s"
        rates = [f"{_giga(each[key])}FLOP/s" if each[key] else "none"
                 for key in ("bfloat16", "float32")]  # fmt: skip
        rows.append((each["name"], each["label"], *sizes, *rates))
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
