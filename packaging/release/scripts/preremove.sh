#!/bin/sh
# Before the package is removed. dpkg says "remove" or "upgrade", rpm how many will be left.
set -e
case $1 in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
# Two commands: a masked unit cannot be disabled, but it may run.
systemctl --no-reload disable lbd-drain.service lbd.service || true
systemctl stop lbd-drain.service lbd.service || true
# What a daemon leaves in the kernel for its connections goes too.
/usr/bin/lbd cleanup || true
