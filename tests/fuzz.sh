#!/bin/sh
# Runs every fuzz test of the module for the given -fuzztime, one after another. Of a
# number of runs, those that read whole files or states get a quarter: each of theirs takes
# ten times as long.
set -eu
time=${1:-200000x}
case $time in
*x) slow=$((${time%x} / 4))x ;;
*) slow=$time ;;
esac
for file in $(git ls-files -co --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz'); do
	dir=$(dirname "$file")
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		case $name in
		FuzzLoad | FuzzState | FuzzRemoteState) runs=$slow ;;
		*) runs=$time ;;
		esac
		echo "fuzz $dir $name $runs"
		go test "./$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$runs" -fuzzminimizetime 1000x -parallel 2 >/tmp/lbd-fuzz.$$ 2>&1 || { cat /tmp/lbd-fuzz.$$; rm -f /tmp/lbd-fuzz.$$; exit 1; }
		tail -n 1 /tmp/lbd-fuzz.$$
		rm -f /tmp/lbd-fuzz.$$
	done
done
