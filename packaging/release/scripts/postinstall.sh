#!/bin/sh
# After the package was installed or upgraded, by dpkg or by rpm.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers lbd.conf
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# A daemon that runs begins the new program in its place and keeps its addresses. One that
# does not know the command, or does not answer, is restarted: it hands them over.
if systemctl is-active --quiet lbd.service; then
	lbd restart || systemctl restart lbd.service
fi
