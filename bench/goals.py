#!/usr/bin/env python3
"""What the hot path is held to, beside bare loops and the peers that a goal names, and whether it
gets there: tables, and a verdict on each goal. (`./x bench servers` compares with other servers.)

  ./x bench goals                          everything: about half an hour on an idle machine
  ./x bench goals --quick                  a subset: about 5 minutes
  ./x bench goals small-64 new -r 9        some parts, more rounds
  ./x bench goals small-64 --rows reactor nginx-tuned
  ./x bench goals small-64 --rows reactor ceil-epoll
  ./x bench goals small-64 --rows reactor 'cmd:mine:./mine --port {port} --root {root}'
  ./x bench goals --show                   what was measured last, without measuring
  ./x bench goals --publish                the same, into docs/goals.md

Parts:
  small-64, small-1000, small-10000
               a file of 600 bytes over keep-alive connections
  new          a connection for each request
  big          a file of 1 MiB
  idle         memory with 10,000 idle connections
  crowd        p99 of 64 busy connections beside 10,000 idle ones
  calls, calls-new
               system calls a request (needs perf, and to be root)
  loops        two loops on two cores against one
  open         p99 in an open loop at 70 % of tuned nginx's capacity
  threads-64, threads-1000
               the threaded architectures against Apache's event MPM

Every round starts a fresh server on its own port, checks an answer, and loads it from another core.
Rounds are interleaved (A B C C B A ...); rounds in which others used the machine are repeated.
Results are kept in target/bench/goals.json: a part that is measured again takes the place of its
earlier self (with --add its rounds come on top), the others stay, so a table can be made in several
sittings; --quick and --rows keep theirs in target/bench/some.json instead. Each part's table is
printed when it is done, the goals at the end; Markdown of everything in the file is written beside
it. A system service that a package has started (nginx, apache2, lighttpd, h2o) must be stopped
first; a server that is not installed is left out.

Rows are the servers of the parts, any other of lab/compare.toml, and  cmd:LABEL:COMMAND  with {port}
{root} {path} {size} filled in.
"""

import argparse
import shlex
import sys

import page
from parts import PARTS, QUICK_PARTS, QUICK_ROWS
from peers import lab_servers
from processes import BENCH, TARGET
from rounds import measure_and_show, round_options


def arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="./x bench goals", description=__doc__, formatter_class=raw)
    p.add_argument("parts", nargs="*", metavar="PART", help="default all")
    o = p.add_argument
    o("--quick", action="store_true", help="few parts and rows, 3 rounds of 2 s")
    o("--rows", nargs="+", metavar="ROW", help="these servers, in place of those of the parts")
    o("--show", action="store_true", help="print what was measured last")
    o("--publish", action="store_true", help="write it into docs/goals.md")
    round_options(p)
    args = p.parse_args()
    args.command_line = f"{BENCH} goals {shlex.join(sys.argv[1:])}".rstrip()
    for name in args.parts:
        if name not in PARTS:
            p.error(f"{name}: no such part; right would be one of {', '.join(PARTS)}")
    args.others = list(args.rows or [])  # whether or not a part has them
    for name in args.others:
        if name not in lab_servers() and not name.startswith("cmd:"):
            known = ", ".join([*lab_servers(), "cmd:LABEL:COMMAND"])
            p.error(f"{name}: no such row; right would be one of {known}")
    if not args.parts:
        args.parts = QUICK_PARTS if args.quick else list(PARTS)
    some = args.quick or args.rows
    if args.quick and not args.rows:
        args.rows = QUICK_ROWS
    args.json = args.json or TARGET / "bench" / ("some.json" if some else "goals.json")
    args.markdown = args.markdown or args.json.with_suffix(".md")
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (2 if args.quick else 4)
    return args


def main() -> None:
    args = arguments()
    measure_and_show(
        args,
        parts=lambda _: [PARTS[name] for name in args.parts],
        render=page.render,
        publish=lambda results: [page.publish(results)],
        closing=lambda results: page.goal_lines(results, only_measured=True),
    )


if __name__ == "__main__":
    main()
