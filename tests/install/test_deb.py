#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: what is in them, what they depend on, and that they run from a scratch root. TAP on stdout."""
import atexit
import glob
import os
import re
import shutil
import sys
import tempfile

from installed import BUILD, ROOT, commands, files_of, install, main, run, version

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
SCRATCH = f"{TEMP}/root"
NAMES = ("libkvkiln", "libkvkiln-dev", "kvkiln")
DEBS = {}


def field(package, name):
    return run("dpkg-deb", "-f", DEBS[package], name).stdout.strip()


def depends(package):
    """{package: oldest version that is enough, or ""}"""
    found = re.findall(r"([\w.+-]+)(?: \((?:>=|=) ([^)]+)\))?", field(package, "Depends"))
    return dict(found)


def cpack_makes_three():
    run("cpack", "--config", f"{BUILD}/CPackConfig.cmake", "-B", f"{TEMP}/debs", cwd=TEMP)
    for name in NAMES:
        (DEBS[name],) = glob.glob(f"{TEMP}/debs/{name}_{version()}*.deb")
        assert field(name, "Package") == name and field(name, "Version").startswith(version())
        # one line, then a text whose lines begin with one blank: more means "as it stands"
        assert re.fullmatch(r"\S[^\n]*(\n \S[^\n]*)+", field(name, "Description")), field(name, "Description")
    assert len(glob.glob(f"{TEMP}/debs/*.deb")) == len(NAMES)


def contents_are_those_of_the_install():
    os.makedirs(SCRATCH)
    of = {}
    for name in NAMES:
        run("dpkg", "-x", DEBS[name], SCRATCH)
        run("dpkg", "-x", DEBS[name], f"{TEMP}/{name}")
        of[name] = files_of(f"{TEMP}/{name}")
    assert sum(len(x) for x in of.values()) == len(set().union(*of.values())), "a file is in two packages"
    install(f"{TEMP}/all/usr")
    assert files_of(SCRATCH) == files_of(f"{TEMP}/all")
    runtime = [f for f in of["libkvkiln"] if "/doc/" not in f]
    assert runtime == [f"usr/lib/libkvkiln.so.{version().split('.')[0]}", f"usr/lib/libkvkiln.so.{version()}"], runtime
    assert not [f for f in of["libkvkiln-dev"] if not re.match(r"usr/(include/|lib/(libkvkiln\.(so|a)$|cmake/|pkgconfig/)|share/doc/)", f)]
    for name in NAMES:
        assert f"usr/share/doc/{name}/copyright" in of[name]
        assert run("dpkg-deb", "-c", DEBS[name]).stdout.count(" root/root ") > 3
    assert os.path.getsize(DEBS["libkvkiln"]) < 300 << 10, os.path.getsize(DEBS["libkvkiln"])
    print("# " + ", ".join(f"{n} {os.path.getsize(DEBS[n]) / 1024:.0f} KiB" for n in NAMES))


def dependencies_are_those_of_the_files():
    """Each library that a file needs belongs to the package, to one that it depends on, or to libc6; and no symbol of libc is
    newer than the libc6 that is asked for."""
    assert set(depends("libkvkiln")) == {"libc6"}, depends("libkvkiln")
    assert depends("libkvkiln-dev") == {"libkvkiln": version()}
    assert depends("kvkiln")["libkvkiln"] == version()
    for name in ("libkvkiln", "kvkiln"):
        needs = {"libc6"} if name == "libkvkiln" else {"libc6", "libkvkiln"}
        newest = (0, 0)
        for file in files_of(f"{TEMP}/{name}"):
            path = f"{TEMP}/{name}/{file}"
            with open(path, "rb") as f:
                if f.read(4) != b"\x7fELF":
                    continue
            for library in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", path).stdout):
                if not glob.glob(f"{SCRATCH}/usr/lib/{library}"):
                    owner = run("dpkg", "-S", f"*/{library}").stdout
                    needs.add(re.search(rf"^([\w.+-]+)(?::\w+)?: /(?:usr/)?lib/[^/]*/{re.escape(library)}$", owner, re.M).group(1))
            used = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "--dyn-syms", "-W", path).stdout)
            newest = max([newest] + [(int(a), int(b)) for a, b in used])
        assert set(depends(name)) == needs, (name, depends(name), needs)
        assert tuple(int(x) for x in depends(name)["libc6"].split(".")) >= newest, (name, depends(name), newest)
        print(f"# {name}: {', '.join(sorted(needs))}; libc symbols up to {newest[0]}.{newest[1]}")


def stripped_and_relocatable():
    for file in ("usr/lib/libkvkiln.so.0", "usr/lib/libkvkiln-gen.so", "usr/bin/kvkiln"):
        sections = run("readelf", "-SW", f"{SCRATCH}/{file}").stdout
        assert ".debug_info" not in sections and ".symtab" not in sections, file
    control = f"{TEMP}/control"
    run("dpkg-deb", "-e", DEBS["libkvkiln"], control)
    with open(f"{control}/triggers", encoding="ascii") as f:
        assert "ldconfig" in f.read()
    with open(f"{control}/md5sums", encoding="ascii") as f:
        assert len(f.read().splitlines()) == len([f for f in files_of(f"{TEMP}/libkvkiln") if not os.path.islink(f"{TEMP}/libkvkiln/{f}")])


def packages_run_from_a_scratch_root():
    env = {"KVKILN_CACHE_DIR": f"{TEMP}/cache"}
    kvkiln = f"{SCRATCH}/usr/bin/kvkiln"
    assert run(kvkiln, "--version", **env).stdout == f"kvkiln {version()}\n"
    for command in commands(kvkiln):
        assert run(kvkiln, command, "--help", **env).stdout.startswith(f"Usage: kvkiln {command}")
    sample = sorted(glob.glob(f"{SCRATCH}/usr/share/kvkiln/data/*k8v4*d64*"))[0]
    assert " PASS" in run(kvkiln, "check", "--device", "host", sample, **env).stdout
    flags = run("pkg-config", "--cflags", "--libs", "kvkiln", PKG_CONFIG_PATH=f"{SCRATCH}/usr/lib/pkgconfig").stdout.split()
    run("gcc", "-std=c11", f"{ROOT}/examples/minimal/minimal.c", *flags, "-o", f"{TEMP}/minimal")
    done = run(f"{TEMP}/minimal", LD_LIBRARY_PATH=f"{SCRATCH}/usr/lib", **env)
    assert done.stdout.startswith("PASS"), done.stdout
    # the runtime alone: what it has in the cache runs, the rest is refused by name
    run("dpkg", "-x", DEBS["libkvkiln"], f"{TEMP}/alone")
    run(f"{TEMP}/minimal", LD_LIBRARY_PATH=f"{TEMP}/alone/usr/lib", **env)
    done = run(f"{TEMP}/minimal", code=1, LD_LIBRARY_PATH=f"{TEMP}/alone/usr/lib", KVKILN_CACHE_DIR="")
    assert "libkvkiln-gen.so" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


if not shutil.which("dpkg-deb"):
    print("1..0 # skip: not a Debian")
    sys.exit(77)
main([cpack_makes_three, contents_are_those_of_the_install, dependencies_are_those_of_the_files, stripped_and_relocatable,
      packages_run_from_a_scratch_root])
