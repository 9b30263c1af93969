#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots of what kvkiln measured, as SVG, by gnuplot.

plot.py --out DIR [--peers peers.json] [--peak TFLOPS] FILE.json...

FILE is what `kvkiln bench suite --json` or `kvkiln bench KIND --json` wrote. Makes in DIR
  roofline.svg     operations a second against operations a byte, below the copy bandwidth of the same run
  decode_time.svg  time of a decode step against the context, one line a preset, layout, gqa and batch; those of one context
                   only where there are no others
Points that were not verified are left out, and so is a plot without points (exit status 1 if both are).
"""
import argparse
import json
import os
import subprocess
import sys


def benches(path):
    """The verified runs of a file: objects as bench_json writes them."""
    with open(path, encoding="utf-8") as file:
        root = json.load(file)
    found = [row["bench"] for row in root.get("rows", []) if row.get("bench")] or root.get("results") or [root]
    for run in found:
        run.setdefault("device_name", root.get("device_name", "?"))
        run.setdefault("device", root.get("device", "?"))
    return [run for run in found if run.get("verified") and run.get("median_ms", 0) > 0]


def short(preset):
    return preset.replace("turboquant_", "").replace("_", " ")


def devices(runs):
    names = sorted({f"{r['device_name']} ({r['device']})" for r in runs})
    return ", ".join(names)


def block(points):
    """Inline data of gnuplot."""
    return "".join(" ".join(f"{x:.9g}" for x in point) + "\n" for point in points) + "e\n"


def gnuplot(text, path):
    head = f"set terminal svg size 900,560 font 'sans,13' background rgb 'white'\nset output '{path}'\nset grid\n"
    done = subprocess.run(["gnuplot"], input=head + text, text=True, capture_output=True)
    if done.returncode or not os.path.getsize(path):
        sys.exit(f"gnuplot: {done.stderr.strip()}")
    print(path)


def quoted(text):
    return '"' + text.replace("\\", "/").replace('"', "'").replace("_", r"\\_") + '"'


def plot(series, lines):
    """The plot command and its data: series {name: points}, lines [(expression, name)]."""
    parts = [f"{expression} title {quoted(name)} with lines lw 2 lc rgb 'gray40'" for expression, name in lines]
    parts += [f"'-' title {quoted(name)} with {style}" for name, (_, style) in series.items()]
    return "plot " + ", \\\n ".join(parts) + "\n" + "".join(block(points) for points, _ in series.values())


def roofline(runs, peak, path):
    series = {}
    for run in runs:
        moved = run["read_bytes"] + run["written_bytes"]
        if run.get("flops", 0) > 0 and moved > 0:
            name = f"{run['kind']} {short(run['preset'])} {run['layout']}"
            series.setdefault(name, []).append((run["flops"] / moved, run["flops"] / run["median_ms"] * 1e-9))
    if not series:
        return 0
    copy = max(run["copy_gbs"] for run in runs)
    lines = [(f"x*{copy * 1e-3:.9g}", f"copy bandwidth, {copy:.0f} GB/s")]
    if peak:
        lines = [(f"(x*{copy * 1e-3:.9g} < {peak} ? x*{copy * 1e-3:.9g} : {peak})",
                  f"copy bandwidth, {copy:.0f} GB/s, and {peak:g} TFLOP/s")]
    xs = [x for points in series.values() for x, _ in points]
    text = (f"set title {quoted('Roofline: ' + devices(runs))}\nset logscale xy\nset key outside right\nset format y '%g'\n"
            f"set xrange [{min(xs) / 3:.9g}:{max(xs) * 3:.9g}]\n"
            "set xlabel 'operations a byte (read once, written once)'\nset ylabel 'TFLOP/s'\n")
    gnuplot(text + plot({n: (sorted(p), "points pt 7 ps 0.7") for n, p in sorted(series.items())}, lines), path)
    return 1


def decode_time(runs, peers, path):
    series = {}
    for run in runs:
        even = run["sequences"] == f"{run['batch']}x{run['context']}"
        if run["kind"] == "decode" and even and run["query_tokens"] == 1 and run["head_size"] == 128:
            name = f"{short(run['preset'])} {run['layout']}, gqa {run['gqa']}, batch {run['batch']}"
            series.setdefault(name, {})[run["context"]] = run["median_ms"]
    series = {n: (sorted(points.items()), "linespoints lw 2 pt 7 ps 0.6") for n, points in sorted(series.items())}
    if not series:
        return 0
    lines = {n: points for n, points in series.items() if len(points[0]) > 1}
    series = lines or series  # points of one context, of a whole suite, would hide the lines
    for peer in peers:
        series[f"{peer['name']}, batch {peer['batch']}"] = (peer["points"], "linespoints dt 2 pt 6 ps 0.6")
    text = (f"set title {quoted('Decode step: ' + devices(runs))}\nset logscale xy 2\nset key outside right\n"
            "set xlabel 'cached tokens a sequence'\nset ylabel 'ms a launch'\nset format y '%.3g'\n")
    gnuplot(text + plot(series, []), path)
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--peers", help="figures of other implementations on the same GPU, drawn dashed")
    parser.add_argument("--peak", type=float, default=0, help="TFLOP/s of the matrix units, for the roof")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    runs = [run for path in args.files for run in benches(path)]
    peers = []
    if args.peers:
        with open(args.peers, encoding="utf-8") as file:
            peers = json.load(file)["series"]
    os.makedirs(args.out, exist_ok=True)
    made = roofline(runs, args.peak, f"{args.out}/roofline.svg") + decode_time(runs, peers, f"{args.out}/decode_time.svg")
    if not made:
        sys.exit("no verified run that a plot could show")


main()
