package gobgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/model"
)

// GRACEFUL_SHUTDOWN of RFC 8326 section 3.1, 65535:0.
const gracefulShutdown = 0xffff0000

// path is what the server was last given.
type path struct {
	to      []model.BGPAudience
	classes []*class
}

// The server has one path to a prefix for all peers. If its attributes are the same
// for all who get it, the path carries them, and the markers say how many prepends.
// If they differ the path carries none; the marker of a peer names a class, and the
// statement of that peer and class sets the attributes. A class lives as long as a
// path uses it.

// firstClass is the number of the first class in markers, where numbers of prepends
// are lower.
const firstClass = 1 << 16

// class are attributes that some peers get on paths that others get with other ones.
type class struct {
	id       int // in markers; never given twice
	attrs    model.PathAttributes
	shutdown bool
	users    map[string]int // how many paths, by name of the peer
}

// advertised is what the server was given to advertise, and what that needs of the export policy.
type advertised struct {
	paths     map[netip.Prefix]path
	prepends  map[int]struct{}
	classes   []*class // in use
	lastClass int      // how many classes there have been
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
	route, err := s.request(&want, classes)
	if err == nil {
		_, err = s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{route}})
	}
	if err != nil {
		s.dismiss(want.To, classes)
		return fmt.Errorf("path %s: %w", want.Prefix, err)
	}
	had := s.paths[want.Prefix]
	s.paths[want.Prefix] = path{want.To, classes}
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
	route, err := pathTo(prefix)
	if err == nil {
		err = s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{route}})
	}
	if err != nil {
		return fmt.Errorf("withdraw %s: %w", prefix, err)
	}
	delete(s.paths, prefix)
	s.dismiss(had.to, had.classes)
	return nil
}

// pathTo is a path of the server to a prefix. The next hop is unspecified, which
// the server replaces with the local address of each session, and for IPv4 over
// an IPv6 session with MP_REACH_NLRI (RFC 8950).
func pathTo(prefix netip.Prefix) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, err
	}
	p := &apiutil.Path{Family: bgp.RF_IPv4_UC, Nlri: nlri, Age: time.Now().Unix()}
	var hop bgp.PathAttributeInterface
	if prefix.Addr().Is4() {
		hop, err = bgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
	} else {
		p.Family = bgp.RF_IPv6_UC
		hop, err = bgp.NewPathAttributeMpReachNLRI(p.Family, []bgp.PathNLRI{{NLRI: nlri}}, netip.IPv6Unspecified())
	}
	p.Attrs = []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), hop}
	return p, err
}

// request turns a path into one of the server.
func (s *Speaker) request(want *model.BGPPath, classes []*class) (*apiutil.Path, error) {
	p, err := pathTo(want.Prefix)
	if err != nil {
		return nil, err
	}
	var large []*bgp.LargeCommunity
	if classes == nil {
		p.Attrs, large = attributes(p.Attrs, &want.To[0])
	} else if slices.ContainsFunc(want.To, func(to model.BGPAudience) bool { return to.Shutdown }) {
		p.Attrs = append(p.Attrs, bgp.NewPathAttributeLocalPref(0)) // see class.actions
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
		p.Attrs = append(p.Attrs, bgp.NewPathAttributeLargeCommunities(large))
	}
	return p, nil
}

// attributes adds those that all peers get. Large communities are returned for more
// to come.
func attributes(attrs []bgp.PathAttributeInterface, to *model.BGPAudience) ([]bgp.PathAttributeInterface, []*bgp.LargeCommunity) {
	if to.MEDSet {
		attrs = append(attrs, bgp.NewPathAttributeMultiExitDisc(to.MED))
	}
	// The server keeps LOCAL_PREF from eBGP peers, RFC 4271 section 5.1.5.
	switch {
	case to.Shutdown:
		attrs = append(attrs, bgp.NewPathAttributeLocalPref(0)) // RFC 8326 section 4
	case to.LocalPref != 0:
		attrs = append(attrs, bgp.NewPathAttributeLocalPref(to.LocalPref))
	}
	communities := to.Communities
	if to.Shutdown {
		communities = append(slices.Clip(communities), gracefulShutdown)
	}
	if len(communities) > 0 {
		attrs = append(attrs, bgp.NewPathAttributeCommunities(communities))
	}
	large := make([]*bgp.LargeCommunity, 0, len(to.LargeCommunities)+len(to.Peers))
	for _, c := range to.LargeCommunities {
		large = append(large, bgp.NewLargeCommunity(c[0], c[1], c[2]))
	}
	return attrs, large
}

// classOf finds or makes the class of an audience.
func (s *Speaker) classOf(to *model.BGPAudience) *class {
	for _, c := range s.classes {
		if c.shutdown == to.Shutdown && c.attrs.Equal(&to.PathAttributes) {
			return c
		}
	}
	s.lastClass++
	c := &class{id: firstClass + s.lastClass, attrs: to.PathAttributes, shutdown: to.Shutdown, users: make(map[string]int)}
	s.classes = append(s.classes, c)
	return c
}

// enlist has the policy know what a path needs, and returns the classes that it
// uses, one for each audience; none if all peers get the same.
func (s *Speaker) enlist(want *model.BGPPath) ([]*class, error) {
	if len(want.To) == 1 {
		n := want.To[0].Prepend
		if _, ok := s.prepends[n]; ok {
			return nil, nil
		}
		s.prepends[n] = struct{}{}
		for _, p := range s.peers {
			if err := s.admit(p); err != nil {
				return nil, fmt.Errorf("peer %q: %w", p.conf.Name, err)
			}
		}
		return nil, nil
	}
	classes := make([]*class, len(want.To))
	var failed error
	for i := range want.To {
		c := s.classOf(&want.To[i])
		classes[i] = c
		for _, name := range want.To[i].Peers {
			c.users[name]++
			if p := s.peers[name]; c.users[name] == 1 && p != nil {
				if err := s.admit(p); err != nil {
					failed = cmp.Or(failed, fmt.Errorf("peer %q: %w", name, err))
				}
			}
		}
	}
	if failed != nil {
		s.dismiss(want.To, classes)
		return nil, failed
	}
	return classes, nil
}

// dismiss ends what a path needed of the policy.
func (s *Speaker) dismiss(to []model.BGPAudience, classes []*class) {
	for i, c := range classes {
		for _, name := range to[i].Peers {
			if c.users[name]--; c.users[name] > 0 {
				continue
			}
			delete(c.users, name)
			if p := s.peers[name]; p != nil {
				if err := s.revoke(p, c.id); err != nil {
					s.log.Debug("policy not removed", "peer", name, "err", err)
				}
			}
		}
		if len(c.users) == 0 {
			s.classes = slices.DeleteFunc(s.classes, func(x *class) bool { return x == c })
		}
	}
}

// actions are what the statement of a peer does to paths with the marker of a class.
func (c *class) actions() *api.Actions {
	a := &api.Actions{}
	communities := c.attrs.Communities
	if c.shutdown {
		communities = append(slices.Clip(communities), gracefulShutdown)
	}
	if len(communities) > 0 {
		a.Community = &api.CommunityAction{Type: api.CommunityAction_TYPE_REPLACE}
		for _, x := range communities {
			a.Community.Communities = append(a.Community.Communities, fmt.Sprintf("%d:%d", x>>16, x&0xffff))
		}
	}
	if len(c.attrs.LargeCommunities) > 0 { // in place of the markers
		a.LargeCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_REPLACE}
		for _, x := range c.attrs.LargeCommunities {
			a.LargeCommunity.Communities = append(a.LargeCommunity.Communities, fmt.Sprintf("%d:%d:%d", x[0], x[1], x[2]))
		}
	}
	if c.attrs.MEDSet {
		a.Med = &api.MedAction{Type: api.MedAction_TYPE_REPLACE, Value: int64(c.attrs.MED)}
	}
	// The server keeps it from eBGP peers, and has no way to set 0, which the path has
	// if any of its peers shall leave.
	if !c.shutdown {
		a.LocalPref = &api.LocalPrefAction{Value: cmp.Or(c.attrs.LocalPref, defaultLocalPref)}
	}
	return a
}

// defaultLocalPref is what routers take for a path without LOCAL_PREF.
const defaultLocalPref = 100

// revoke removes the statements of a peer for one number in markers.
func (s *Speaker) revoke(p *peer, tag int) error {
	var names []string
	p.statements = slices.DeleteFunc(p.statements, func(name string) bool {
		of := slices.ContainsFunc([]*api.Family{ipv4, ipv6}, func(f *api.Family) bool {
			return strings.HasPrefix(name, fmt.Sprintf("%s-%d-%d-", p.set(), f.Afi, tag))
		})
		if of {
			names = append(names, name)
		}
		return of
	})
	if err := s.removeStatements(names); err != nil {
		return err
	}
	mark := p.mark(tag)
	if i := slices.Index(p.marks, mark); i >= 0 {
		p.marks = slices.Delete(p.marks, i, i+1)
		return s.removeMark(mark)
	}
	return nil
}
