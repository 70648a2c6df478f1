package decide

import (
	"net/netip"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// What a script says of a machine that learns by BGP which masters have the VIP.

// box listener | masters ADDR...: the VIP is one of masters on eth1; these advertise it.
func (s *stage) box(name string, args []string) {
	prefix := netip.PrefixFrom(scriptVIP, 32)
	if name == "listener" {
		s.command("link", []string{"eth1", "up", "10.9.0.10/24"})
		v := &s.v.VIPs[0]
		v.Kind, v.Unbound, v.Check = model.KindBGPListener, true, ""
		s.v.Listeners = []model.BGPListener{{
			Name: "b", LocalASN: 64512, MaxPrefixes: 4, Accept: []netip.Prefix{prefix}, PeerPrefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")},
		}}
		return
	}
	told := s.v.Applied[model.SinkBGP]
	told.Learned = nil
	for _, a := range args {
		hop := netip.MustParseAddr(a)
		told.Learned = append(told.Learned, model.LearnedPath{Listener: "b", Peer: hop, PeerASN: 64513, Prefix: prefix, NextHop: hop})
	}
	s.v.Applied[model.SinkBGP] = told
}

// lead has the driver of routes do what was decided last. While masters may not have been heard
// of, what an earlier process made stays.
func (s *stage) lead() {
	if len(s.d.Routes.Routes) == 0 {
		return
	}
	is := model.Applied{Gen: s.d.Gen, Routes: make(map[netip.Prefix]model.AppliedRoute)}
	for _, r := range s.d.Routes.Routes {
		is.Routes[r.Prefix] = model.AppliedRoute{NextHops: r.NextHops}
		if s.d.Routes.Hearing && len(r.NextHops) == 0 {
			is.Routes[r.Prefix] = s.v.Applied[model.SinkRoute].Routes[r.Prefix]
		}
	}
	s.v.Applied[model.SinkRoute] = is
}

// routes are where packets are sent.
func (s *stage) routes() string {
	line := ""
	for _, r := range s.d.Routes.Routes {
		hops := []string{}
		for _, h := range r.NextHops {
			hops = append(hops, h.Gateway.String())
		}
		if len(hops) == 0 {
			hops = []string{"none"}
		}
		line += " route=" + strings.Join(hops, ",")
		if s.d.Routes.Hearing {
			line += "+hearing"
		}
	}
	return line
}
