#!/bin/sh
# Checks the unit with systemd-analyze, without lbd being installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -e 's|^ExecStart=.*|ExecStart=/bin/true|' -e 's|^ExecReload=.*|ExecReload=/bin/true|' "$(dirname "$0")/lbd.service" >"$dir/lbd.service"
sed -e 's|^ExecStop=.*|ExecStop=/bin/true|' "$(dirname "$0")/lbd-drain.service" >"$dir/lbd-drain.service"
out=$(systemd-analyze verify --man=no "$dir/lbd.service" "$dir/lbd-drain.service" 2>&1) || { echo "$out"; exit 1; }
# verify ends with 0 on unknown settings, and speaks of other units of the host.
if echo "$out" | grep -E "lbd(-drain)?\.service"; then exit 1; fi
level=$(systemd-analyze security --offline=true --threshold=30 "$dir/lbd.service" 2>&1) || { echo "$level" | tail -n 1; exit 1; }
echo "$level" | tail -n 1
