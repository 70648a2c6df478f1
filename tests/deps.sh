#!/bin/sh
# Installs the Debian packages that are missing of those named. Services that
# they bring are not started: the lab runs their programs in its own namespaces.
set -eu
missing=""
for p in "$@"; do
	dpkg -s "$p" >/dev/null 2>&1 || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "install as root:$missing"
	exit 1
fi
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT INT TERM
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of names
apt-get install -y -qq --no-install-recommends $missing >/dev/null
