#!/bin/sh
# Runs every fuzz test of the module for the given -fuzztime, one after another.
set -eu
time=${1:-200000x}
for file in $(git ls-files -co --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz'); do
	dir=$(dirname "$file")
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "fuzz $dir $name"
		go test "./$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -parallel 2 >/tmp/lbd-fuzz.$$ 2>&1 || { cat /tmp/lbd-fuzz.$$; rm -f /tmp/lbd-fuzz.$$; exit 1; }
		tail -n 1 /tmp/lbd-fuzz.$$
		rm -f /tmp/lbd-fuzz.$$
	done
done
