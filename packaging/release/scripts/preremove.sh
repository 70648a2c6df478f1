#!/bin/sh
# Before the package is removed. dpkg says "remove" or "upgrade", rpm how many will be left.
set -e
case $1 in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl --no-reload disable --now lbd-drain.service lbd.service || true
# What a daemon leaves in the kernel for its connections goes too.
lbd cleanup || true
