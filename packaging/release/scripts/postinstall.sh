#!/bin/sh
# After the package was installed or upgraded, by dpkg or by rpm.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers lbd.conf
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# A daemon that runs begins the new program in its place and keeps its addresses. One that
# does not know the command, or does not answer, is restarted: it hands them over. If the new
# program refuses the configuration, the old one goes on.
systemctl is-active --quiet lbd.service || exit 0
config=$(systemctl show --property=ExecStart --value lbd.service | sed -n 's/.* --config[= ]\([^ ;]*\).*/\1/p')
if ! lbd validate "${config:-/etc/lbd}" >&2; then
	echo "lbd: this version refuses the configuration, so the daemon goes on with the old program; mend it, then: lbd restart" >&2
elif ! lbd restart && ! systemctl restart lbd.service; then
	echo "lbd: the daemon does not start; see: journalctl -u lbd" >&2
fi
