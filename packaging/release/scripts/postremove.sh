#!/bin/sh
# After the package was removed. The configuration and the key in /etc/lbd are the user's, and
# stay when dpkg purges the package too; the state of the daemon does not.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/lbd
	rmdir /etc/lbd 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
