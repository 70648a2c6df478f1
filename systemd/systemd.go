// Package systemd carries the unit and the user of lbd for `lbd manifest`.
package systemd

import _ "embed"

// Unit is the service unit.
//
//go:embed lbd.service
var Unit string

// Sysusers is the user that the unit runs as, for systemd-sysusers.
//
//go:embed lbd.sysusers
var Sysusers string

// DrainUnit is the unit that drains the node before the host goes down.
//
//go:embed lbd-drain.service
var DrainUnit string
