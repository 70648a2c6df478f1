package gobgp

import (
	"fmt"
	"net/netip"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"lbd.dev/lbd/internal/model"
)

// GRACEFUL_SHUTDOWN of RFC 8326 section 3.1, 65535:0.
const gracefulShutdown = 0xffff0000

// path is what the server was last given.
type path struct{ nlri *anypb.Any }

// SetPath adds a path or replaces the one to the same address.
func (s *Speaker) SetPath(want model.BGPPath) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return errNotStarted
	}
	if err := s.twins(want); err != nil {
		return err
	}
	if _, ok := s.prepends[want.Prepend]; !ok {
		s.prepends[want.Prepend] = struct{}{}
		for _, p := range s.peers {
			if err := s.admit(p); err != nil {
				return fmt.Errorf("peer %q: %w", p.conf.Name, err)
			}
		}
	}
	req, err := s.request(want)
	if err != nil {
		return err
	}
	if _, err := s.server.AddPath(s.ctx, req); err != nil {
		return fmt.Errorf("path %s: %w", want.Addr, err)
	}
	s.paths[want.Addr] = path{req.Path.Nlri}
	return nil
}

// DeletePath withdraws a path.
func (s *Speaker) DeletePath(addr netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	had, ok := s.paths[addr]
	if !ok {
		return nil
	}
	family := familyOf(addr)
	attrs, err := pack(&api.OriginAttribute{}, nextHop(addr, had.nlri))
	if err != nil {
		return err
	}
	if err := s.server.DeletePath(s.ctx, &api.DeletePathRequest{
		Family: family,
		Path:   &api.Path{Family: family, Nlri: had.nlri, Pattrs: attrs, IsWithdraw: true},
	}); err != nil {
		return fmt.Errorf("withdraw %s: %w", addr, err)
	}
	delete(s.paths, addr)
	return nil
}

func familyOf(addr netip.Addr) *api.Family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// request turns a path into one of the server. The next hop is unspecified, which
// the server replaces with the local address of each session, and for IPv4 over
// an IPv6 session with MP_REACH_NLRI (RFC 8950).
func (s *Speaker) request(want model.BGPPath) (*api.AddPathRequest, error) {
	nlri, err := anypb.New(&api.IPAddressPrefix{Prefix: want.Addr.String(), PrefixLen: uint32(want.Addr.BitLen())})
	if err != nil {
		return nil, err
	}
	attrs := []proto.Message{&api.OriginAttribute{}, nextHop(want.Addr, nlri)} // ORIGIN IGP
	if want.MEDSet {
		attrs = append(attrs, &api.MultiExitDiscAttribute{Med: want.MED})
	}
	// The server keeps LOCAL_PREF from eBGP peers, RFC 4271 section 5.1.5.
	switch {
	case want.Shutdown:
		attrs = append(attrs, &api.LocalPrefAttribute{LocalPref: 0}) // RFC 8326 section 4
	case want.LocalPref != 0:
		attrs = append(attrs, &api.LocalPrefAttribute{LocalPref: want.LocalPref})
	}
	communities := want.Communities
	if want.Shutdown {
		communities = append(communities[:len(communities):len(communities)], gracefulShutdown)
	}
	if len(communities) > 0 {
		attrs = append(attrs, &api.CommunitiesAttribute{Communities: communities})
	}
	large := make([]*api.LargeCommunity, 0, len(want.LargeCommunities)+len(want.Peers))
	for _, c := range want.LargeCommunities {
		if c[0] == markerASN {
			return nil, fmt.Errorf("path %s: large community %d:%d:%d is reserved (RFC 8092 section 5)", want.Addr, c[0], c[1], c[2])
		}
		large = append(large, &api.LargeCommunity{GlobalAdmin: c[0], LocalData1: c[1], LocalData2: c[2]})
	}
	for _, name := range want.Peers {
		large = append(large, marker(s.index(name), want.Prepend))
	}
	if len(large) > 0 {
		attrs = append(attrs, &api.LargeCommunitiesAttribute{Communities: large})
	}
	packed, err := pack(attrs...)
	if err != nil {
		return nil, err
	}
	return &api.AddPathRequest{Path: &api.Path{Family: familyOf(want.Addr), Nlri: nlri, Pattrs: packed}}, nil
}

// nextHop is the attribute with an unspecified next hop.
func nextHop(addr netip.Addr, nlri *anypb.Any) proto.Message {
	if addr.Is4() {
		return &api.NextHopAttribute{NextHop: netip.IPv4Unspecified().String()}
	}
	return &api.MpReachNLRIAttribute{Family: ipv6, NextHops: []string{netip.IPv6Unspecified().String()}, Nlris: []*anypb.Any{nlri}}
}

func pack(attrs ...proto.Message) ([]*anypb.Any, error) {
	out := make([]*anypb.Any, len(attrs))
	for i, a := range attrs {
		var err error
		if out[i], err = anypb.New(a); err != nil {
			return nil, err
		}
	}
	return out, nil
}
