#!/bin/sh
# Runs a command and shows what it prints. If it fails, says once more at the end which tests failed
# and what they said: after a failure come the logs of its lab, thousands of lines.
set -u
out=$(mktemp)
trap 'rm -f "$out" "$out.code"' EXIT
{ "$@" 2>&1; echo $? >"$out.code"; } | tee "$out"
code=$(cat "$out.code" 2>/dev/null || echo 130) # none after Ctrl-C
[ "$code" = 0 ] && exit 0
echo
echo "== what failed"
# Without -v go test prints what a failed test said below its name.
awk '
	/^ *--- FAIL/ { failed = 1 }
	/^ *--- (PASS|SKIP)|^===|^ok / { failed = 0 }
	/^ *--- FAIL|^FAIL|^panic:|^fatal error:|^make.*\*\*\*|^gofmt:|^[a-z].*\.go:[0-9]+:[0-9]+: / || failed && /^ +[a-z0-9_]+_test\.go:[0-9]+: / { print substr($0, 1, 400) }
' "$out" | tail -n 60
exit "$code"
