#!/bin/sh
# After the package was installed or upgraded, by dpkg or by rpm.
set -e
say() { echo "lbd: $*" >&2; }

# The user that the unit runs as.
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers lbd.conf
elif ! id -u lbd >/dev/null 2>&1; then
	if ! command -v useradd >/dev/null; then
		say "there is neither systemd-sysusers nor useradd to create the user lbd; create it and its group, then install again"
		exit 1
	fi
	useradd --system --user-group --no-create-home --home-dir /var/lib/lbd --shell /usr/sbin/nologin --comment "lbd address daemon" lbd
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload

# At the first installation: dpkg says "configure" and no older version, rpm how many there are.
case "$1 $2" in
"configure " | "1 ")
	for unit in lbd.service lbd-drain.service; do
		if [ -f /etc/systemd/system/$unit ]; then
			say "/etc/systemd/system/$unit hides the unit of this package, and its later versions; remove it unless you need it, and keep changes in /etc/systemd/system/$unit.d"
		fi
	done
	;;
esac
systemctl is-active --quiet lbd.service || exit 0

# The daemon goes on with the program that it has if the new one refuses the configuration that
# the daemon was started with.
pid=$(systemctl show --property=MainPID --value lbd.service)
config=$(tr '\0' '\n' <"/proc/$pid/cmdline" | sed -n -e 's/^--config=//p' -e '/^--config$/{n;p;}' | tail -n 1)
config=${config:-/etc/lbd}
later="correct that and run: lbd restart. Until then the old program goes on, and a reboot leaves this node without lbd"
if ! why=$(/usr/bin/lbd validate "$config" 2>&1); then
	say "the new program refuses $config:"
	echo "$why" >&2
	say "$later"
	exit 0
fi

# The new program begins in the place of the old one, and the addresses stay.
if /usr/bin/lbd restart --config "$config"; then
	exit 0
fi
# It refused, or does not know the command. One that does not answer hands its addresses over.
if /usr/bin/lbd status --config "$config" >/dev/null 2>&1; then
	say "the daemon did not begin the new program; see above, then run: lbd restart, or: systemctl restart lbd"
	exit 0
fi
systemctl restart lbd.service || say "the daemon does not start; journalctl -u lbd says why"
