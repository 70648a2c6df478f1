package gobgp

import (
	"fmt"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"lbd.dev/lbd/internal/model"
)

// GRACEFUL_SHUTDOWN of RFC 8326 section 3.1, 65535:0.
const gracefulShutdown = 0xffff0000

// path is what the server was last given.
type path struct {
	nlri    *anypb.Any
	to      []model.BGPAudience
	classes []*class
}

// SetPath adds a path or replaces the one to the same prefix.
func (s *Speaker) SetPath(want model.BGPPath) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return errNotStarted
	}
	if err := s.twins(want); err != nil {
		return err
	}
	for i := range want.To {
		for _, c := range want.To[i].LargeCommunities {
			if c[0] == markerASN {
				return fmt.Errorf("path %s: large community %d:%d:%d is reserved (RFC 8092 section 5)", want.Prefix, c[0], c[1], c[2])
			}
		}
	}
	classes, err := s.enlist(&want)
	if err != nil {
		return err
	}
	req, err := s.request(&want, classes)
	if err == nil {
		_, err = s.server.AddPath(s.ctx, req)
	}
	if err != nil {
		s.dismiss(want.To, classes)
		return fmt.Errorf("path %s: %w", want.Prefix, err)
	}
	had := s.paths[want.Prefix]
	s.paths[want.Prefix] = path{req.Path.Nlri, want.To, classes}
	s.dismiss(had.to, had.classes)
	return nil
}

// DeletePath withdraws a path.
func (s *Speaker) DeletePath(prefix netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	had, ok := s.paths[prefix]
	if !ok {
		return nil
	}
	family := familyOf(prefix.Addr())
	attrs, err := pack(&api.OriginAttribute{}, nextHop(prefix.Addr(), had.nlri))
	if err != nil {
		return err
	}
	if err := s.server.DeletePath(s.ctx, &api.DeletePathRequest{
		Family: family,
		Path:   &api.Path{Family: family, Nlri: had.nlri, Pattrs: attrs, IsWithdraw: true},
	}); err != nil {
		return fmt.Errorf("withdraw %s: %w", prefix, err)
	}
	delete(s.paths, prefix)
	s.dismiss(had.to, had.classes)
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
func (s *Speaker) request(want *model.BGPPath, classes []*class) (*api.AddPathRequest, error) {
	addr := want.Prefix.Addr()
	nlri, err := anypb.New(&api.IPAddressPrefix{Prefix: addr.String(), PrefixLen: uint32(want.Prefix.Bits())})
	if err != nil {
		return nil, err
	}
	attrs := []proto.Message{&api.OriginAttribute{}, nextHop(addr, nlri)} // ORIGIN IGP
	var large []*api.LargeCommunity
	if classes == nil {
		attrs, large = attributes(attrs, &want.To[0])
	} else if slices.ContainsFunc(want.To, func(to model.BGPAudience) bool { return to.Shutdown }) {
		attrs = append(attrs, &api.LocalPrefAttribute{LocalPref: 0}) // see class.actions
	}
	for i := range want.To {
		tag := want.To[i].Prepend
		if classes != nil {
			tag = classes[i].id
		}
		for _, name := range want.To[i].Peers {
			large = append(large, marker(s.index(name), tag))
		}
	}
	if len(large) > 0 {
		attrs = append(attrs, &api.LargeCommunitiesAttribute{Communities: large})
	}
	packed, err := pack(attrs...)
	if err != nil {
		return nil, err
	}
	return &api.AddPathRequest{Path: &api.Path{Family: familyOf(addr), Nlri: nlri, Pattrs: packed}}, nil
}

// attributes adds those that all peers get. Large communities are returned for more
// to come.
func attributes(attrs []proto.Message, to *model.BGPAudience) ([]proto.Message, []*api.LargeCommunity) {
	if to.MEDSet {
		attrs = append(attrs, &api.MultiExitDiscAttribute{Med: to.MED})
	}
	// The server keeps LOCAL_PREF from eBGP peers, RFC 4271 section 5.1.5.
	switch {
	case to.Shutdown:
		attrs = append(attrs, &api.LocalPrefAttribute{LocalPref: 0}) // RFC 8326 section 4
	case to.LocalPref != 0:
		attrs = append(attrs, &api.LocalPrefAttribute{LocalPref: to.LocalPref})
	}
	communities := to.Communities
	if to.Shutdown {
		communities = append(slices.Clip(communities), gracefulShutdown)
	}
	if len(communities) > 0 {
		attrs = append(attrs, &api.CommunitiesAttribute{Communities: communities})
	}
	large := make([]*api.LargeCommunity, 0, len(to.LargeCommunities)+len(to.Peers))
	for _, c := range to.LargeCommunities {
		large = append(large, &api.LargeCommunity{GlobalAdmin: c[0], LocalData1: c[1], LocalData2: c[2]})
	}
	return attrs, large
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
