package config

import (
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// newBGP parses the valid section about BGP of a NodeConfiguration.
func newBGP(b *v1alpha1.BGPSpec) model.BGPConfig {
	cfg := model.BGPConfig{ListenPort: uint16(b.ListenPort)}
	cfg.RouterID, _ = netip.ParseAddr(b.RouterID) // zero: none
	for _, text := range b.ListenAddresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			cfg.Listen = append(cfg.Listen, addr)
		}
	}
	return cfg
}

// profile returns the BFDProfile with a name, or nil.
func (n *named) profile(name string) *v1alpha1.BFDProfile {
	if o := n.profiles[name]; o != nil {
		return o.profile
	}
	return nil
}
