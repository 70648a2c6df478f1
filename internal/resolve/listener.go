package resolve

import (
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Listener turns a valid BGPListener into its value and the VIPs of what it accepts. profile is
// the BFDProfile that it names, nil for none; secrets has the content of files.
func Listener(l *v1alpha1.BGPListener, profile *v1alpha1.BFDProfile, secrets map[string]string) (model.BGPListener, []model.VIP) {
	s := &l.Spec
	out := model.BGPListener{
		Name: l.Metadata.Name, LocalASN: s.ASN, PeerASN: s.PeerASN, HoldTime: s.HoldTime.Duration,
		PeerPrefixes: prefixes(s.PeerPrefixes), Accept: prefixes(s.AcceptPrefixes), MaxPrefixes: int(s.MaxPrefixes),
		HashSeed: s.HashSeed,
	}
	if s.PasswordFile != "" {
		out.Password = secrets[s.PasswordFile]
	}
	if profile != nil {
		out.BFD = newProfile(profile, secrets)
	}
	if n := &s.NextHops; n.Mode == v1alpha1.NextHopsResilient {
		out.Spread = model.Spread{Resilient: true, Buckets: uint16(n.Buckets), Idle: n.IdleTimer.Duration, Unbalanced: n.UnbalancedTimer.Duration}
	}
	vips := make([]model.VIP, 0, len(out.Accept))
	for _, p := range out.Accept {
		vip := model.VIP{Addr: p.Addr(), Name: l.Metadata.Name, Kind: model.KindBGPListener, Unbound: true, L2: s.Upstream == v1alpha1.UpstreamL2}
		if s.Upstream == v1alpha1.UpstreamBGP {
			vip.BGP = []model.BGPAdvert{{Length: p.Bits()}}
		}
		vips = append(vips, vip)
	}
	return out, vips
}

func prefixes(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}
