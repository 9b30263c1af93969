# SPDX-License-Identifier: Apache-2.0
"""Which cases of the core of the simulation a target runs.

Targets of one family have the same wave size and differ in single instructions. Every case runs on at least one target
of each family, so that each head size, GQA ratio and dtype that a kind meets in a format, it meets on both families; and
every kind of kernel of every preset and layout runs on every target. All cases on all targets: test_kernels.py --full.
"""
import re

FAMILIES = (("gfx942", "gfx950"), ("gfx1100", "gfx1201"))
KINDS = ("store", "dequant", "decode", "unified", "merge", "copy", "convert_from_aos", "convert_from_soa",
         "convert_from_native", "tiled_equals_unified")


def parse(name):
    """(kind, format, model) of KIND[/...]/PRESET.LAYOUT.dD.gG.DTYPE.pP[/VARIANT]; model: all but the kind and the variant."""
    found = re.fullmatch(r"(.+?)/((\w+\.\w+)\.d\d+(?:x\d+)?\.g\d+\.\w+\.p\d+)(?:/\d+)?", name)
    if not found:
        raise ValueError(f"{name}: not the name of a case")
    return found.group(1), found.group(3), found.group(2)


def place_of(target):
    """Its place in its family, or None: such a target shares with no other."""
    return next((family.index(target) for family in FAMILIES if target in family), None)


def share(names, target, presets):
    """The target's part of `names`, in their order. Models of a format go to the targets in turn, with all their cases
    of KINDS, which share kernels; the turn begins elsewhere with the next format, and with the next of the other kinds,
    many of which run on one and the same model."""
    place, models, others, first = place_of(target), {}, {}, {}
    if place is None:
        return list(names)
    for name in names:
        kind, form, model = parse(name)
        models.setdefault(form, {}).setdefault(model, len(models[form]))
        if kind not in KINDS:
            others.setdefault(kind, len(others))
        if kind in KINDS and form.split(".")[0] in presets:
            first.setdefault((kind, form), name)
    turn = {form: i for i, form in enumerate(models)}
    chosen, met = set(), set()
    for name in names:
        kind, form, model = parse(name)
        if (models[form][model] + turn[form] + others.get(kind, 0)) % 2 == place:
            chosen.add(name)
            met.add((kind, form))
    chosen |= {name for what, name in first.items() if what not in met}
    return [name for name in names if name in chosen]


def share_files(files, target):
    """Neighbours are often two layouts of a preset: 0, 1, 1, 0, and so on."""
    place = place_of(target)
    return [file for i, file in enumerate(files) if place is None or (i + i // 2) % 2 == place]
