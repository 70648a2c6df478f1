package resolve

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Peer parses a valid BGPPeer. profile is the BFDProfile that it names, nil for
// none; secrets has the content of files.
func Peer(p *v1alpha1.BGPPeer, profile *v1alpha1.BFDProfile, secrets map[string]string) model.BGPPeer {
	s := &p.Spec
	out := model.BGPPeer{
		Name:            p.Metadata.Name,
		LocalASN:        s.MyASN,
		PeerASN:         s.PeerASN, // 0 for DynamicExternal
		Address:         peerAddr(s.PeerAddress, s.Interface),
		Port:            uint16(s.PeerPort),
		Source:          peerAddr(s.SourceAddress, s.Interface),
		HoldTime:        s.HoldTime.Duration,
		KeepaliveTime:   s.KeepaliveTime.Duration,
		ConnectTime:     s.ConnectTime.Duration,
		Password:        s.Password,
		Multihop:        s.EBGPMultiHop,
		Passive:         s.Passive,
		GracefulRestart: s.EnableGracefulRestart,
		ShutdownDelay:   s.GracefulShutdownDelay.Duration,
		IPv4:            s.Has(v1alpha1.FamilyIPv4),
		IPv6:            s.Has(v1alpha1.FamilyIPv6),
		MaxPrefixes:     uint32(s.MaxPrefixes),
	}
	out.RouterID, _ = netip.ParseAddr(s.RouterID) // zero: none
	for _, sel := range s.NodeSelectors {
		out.NodeSelectors = append(out.NodeSelectors, maps.Clone(sel.MatchLabels))
	}
	if s.DynamicASN == v1alpha1.DynamicInternal {
		out.PeerASN = s.MyASN
	}
	if s.PasswordFile != "" {
		out.Password = secrets[s.PasswordFile]
	}
	switch {
	case s.TTLSecurity:
		out.MinTTL = 255
	case s.MinimumTTL != nil:
		out.MinTTL = uint8(*s.MinimumTTL)
	}
	if profile != nil {
		out.BFD = newProfile(profile, secrets)
	}
	return out
}

// peerAddr parses a valid address. A link-local IPv6 address gets the interface
// as its zone.
func peerAddr(text, link string) netip.Addr {
	addr, _ := netip.ParseAddr(text) // zero: none
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		return addr.WithZone(link)
	}
	return addr
}

// newProfile parses a valid BFDProfile.
func newProfile(p *v1alpha1.BFDProfile, secrets map[string]string) *model.BFDProfile {
	s := &p.Spec
	return &model.BFDProfile{
		Name:       p.Metadata.Name,
		Transmit:   time.Duration(s.TransmitInterval) * time.Millisecond,
		Receive:    time.Duration(s.ReceiveInterval) * time.Millisecond,
		Multiplier: uint8(s.DetectMultiplier),
		Passive:    s.PassiveMode,
		MinTTL:     uint8(s.MinimumTTL),
		Strict:     s.Strict,
		AuthType:   string(s.AuthType),
		AuthKeyID:  uint8(s.AuthKeyID),
		AuthKey:    secrets[s.AuthKeyFile],
	}
}

// Advert parses a valid advertise.bgp. communities are those of Community objects
// by name.
func Advert(a *v1alpha1.BGPAdvertise, communities map[string]v1alpha1.CommunityValue) model.BGPAdvert {
	out := model.BGPAdvert{Peers: slices.Clone(a.Peers)}
	slices.Sort(out.Peers)
	out.Prepend = int(a.ASPathPrepend)
	if a.LocalPref != nil {
		out.LocalPref = *a.LocalPref
	}
	if a.MED != nil {
		out.MED, out.MEDSet = *a.MED, true
	}
	for _, v := range Communities(a, communities) {
		if v.IsLarge {
			out.LargeCommunities = append(out.LargeCommunities, v.Large)
		} else {
			out.Communities = append(out.Communities, v.Standard)
		}
	}
	// Two names may stand for one community.
	slices.Sort(out.Communities)
	out.Communities = slices.Compact(out.Communities)
	slices.SortFunc(out.LargeCommunities, func(x, y [3]uint32) int {
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(x[2], y[2]))
	})
	out.LargeCommunities = slices.Compact(out.LargeCommunities)
	return out
}

// Communities returns the communities of a valid advertise.bgp in their order, without
// names that are not known: there is no community that stands for nothing.
func Communities(a *v1alpha1.BGPAdvertise, names map[string]v1alpha1.CommunityValue) []v1alpha1.CommunityValue {
	var all []v1alpha1.CommunityValue
	for _, text := range a.Communities {
		v, err := v1alpha1.ParseCommunity(text)
		known := err == nil
		if !known {
			v, known = names[text]
		}
		if known {
			all = append(all, v)
		}
	}
	for _, text := range a.LargeCommunities {
		if v, err := v1alpha1.ParseLargeCommunity(text); err == nil {
			all = append(all, v)
		}
	}
	return all
}
