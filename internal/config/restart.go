package config

import (
	"fmt"
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
)

// restartOnly returns an error for each field that is not the same in next as in
// now and that a running daemon cannot change.
func restartOnly(now, next *Config) []*Error {
	var errs []*Error
	check := func(path string, same bool, old, value any) {
		if same {
			return
		}
		o := next.node
		errs = append(errs, &Error{
			File: o.file, Line: o.lineOf(path), Object: o.title(),
			Field: v1alpha1.FieldError{Path: path, Value: value, Rule: fmt.Sprintf(
				"cannot change while lbd runs, which uses %v; restart lbd, or put it back", old)},
		})
	}
	a, b := &now.Node, &next.Node
	check("nodeName", a.Name == b.Name, a.Name, string(b.Name))
	check("gossip.bindAddress", a.Gossip.BindAddress == b.Gossip.BindAddress,
		orDefault(a.Gossip.BindAddress), orDefault(b.Gossip.BindAddress))
	check("gossip.port", a.Gossip.Port == b.Gossip.Port, a.Gossip.Port, b.Gossip.Port)
	check("gossip.label", a.Gossip.Label == b.Gossip.Label, a.Gossip.Label, b.Gossip.Label)
	check("gossip.insecure", a.Gossip.Insecure == b.Gossip.Insecure, a.Gossip.Insecure, b.Gossip.Insecure)
	check("gossip.detection", a.Gossip.Detection == b.Gossip.Detection, a.Gossip.Detection, string(b.Gossip.Detection))
	check("http.address", a.HTTPAddress == b.HTTPAddress, orOff(a.HTTPAddress), orOff(b.HTTPAddress))
	check("http.pprof", a.Pprof == b.Pprof, a.Pprof, b.Pprof)
	check("socket", a.Socket == b.Socket, a.Socket, b.Socket)
	check("log.format", a.LogFormat == b.LogFormat, a.LogFormat, string(b.LogFormat))
	return errs
}

// orDefault shows a bind address.
func orDefault(addr netip.Addr) string {
	if !addr.IsValid() {
		return "the default"
	}
	return addr.String()
}

// orOff shows the address of a listener.
func orOff(address string) string {
	if address == "" {
		return v1alpha1.HTTPOff
	}
	return address
}
